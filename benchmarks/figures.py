"""The two figures of docs/performance.md, in the style of all others: the layer's speed, and growth with n."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.store import Table, is_cell
from lmu_scaling.paper import style
from lmu_scaling.paper.axes import log_axis
from lmu_scaling.paper.figures import complexity
from lmu_scaling.runtime import si

SPEED = "LMU + implicit attention: forward and backward"
POINTS, SLOPES = "Growth with n: points", "Growth with n: exponents"
OURS, RIVAL = style.DEFAULTS["lmu"].colour, style.SUBDUED
MARKERS = {"S": "o", "M": "s", "L": "^"}


def draw_all(chapters: dict[str, list[Table]], folder: Path) -> list[tuple[Path, str]]:
    """Draw what has been measured; returns files and captions."""
    found = []
    with style.context():
        for name, section, draw in (("layer", "layer", layer), ("growth", "growth", growth)):
            drawn = draw({table["title"]: table for table in chapters.get(section, [])})
            if drawn is not None:
                path = folder / f"performance_{name}.png"
                save_png(drawn[0], path)
                found.append((path, drawn[1].strip()))
    return found


def save_png(figure: Figure, path: Path) -> None:
    """The page needs no PDF and no SVG."""
    with tempfile.TemporaryDirectory() as scratch:
        style.save(figure, pdf=Path(scratch) / "a.pdf", svg=Path(scratch) / "a.svg", png=path)


def layer(tables: dict[str, Table]) -> tuple[Figure, str] | None:
    """Tokens per second of every form at every size, with quartiles; ours in colour."""
    table = tables.get(SPEED)
    if table is None or not any(is_cell(entry) for row in table["rows"] for entry in row):
        return None
    sizes = [name for name in table["columns"][1:] if name in MARKERS]
    rows = [row for row in table["rows"] if is_cell(row[1])]
    figure = style.Look().figure(2, 0.9 + 0.24 * len(rows))
    axes = figure.subplots()
    axes.set_xscale("log")
    for height, row in enumerate(reversed(rows)):
        colour = OURS if "ours" in row[0] else RIVAL
        for size in sizes:
            entry = row[table["columns"].index(size)]
            if is_cell(entry):
                error = [[entry["value"] - entry["low"]], [entry["high"] - entry["value"]]]
                axes.errorbar(entry["value"], height, xerr=error, fmt=MARKERS[size], color=colour, elinewidth=0.8)
    axes.set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    for size in sizes:
        axes.plot([], [], MARKERS[size], color=style.INK, label=f"size {size}")
    figure.legend(loc="outside upper center", ncols=len(sizes))
    log_axis(axes.xaxis, "Tokens per second, forward and backward", si)
    caption = f"Speed of the LMU layer by form at sizes {', '.join(sizes)} (medians and quartiles); ours in colour."
    return figure, caption


def growth(tables: dict[str, Table]) -> tuple[Figure, str] | None:
    """The figure behind Table 1, drawn from the benchmark's own points."""
    if POINTS not in tables or SLOPES not in tables:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        paths = {name: Path(scratch) / Path(name).name for name in complexity.INPUTS}
        for path, title in zip(paths.values(), (POINTS, SLOPES), strict=True):
            frame(tables[title]).to_csv(path, index=False)
        return complexity.draw(paths, style.Look(columns=2))


def frame(table: Table) -> pd.DataFrame:
    def plain(entry: Any) -> Any:
        return entry["value"] if is_cell(entry) else entry

    rows = [[plain(entry) for entry in row] for row in table["rows"]]
    return pd.DataFrame(rows, columns=table["columns"])
