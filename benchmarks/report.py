"""Write docs/performance.md and its figures from benchmarks/results.json: `python -m benchmarks.report`.

The page begins with missed targets and numbers that got worse; then one chapter per section.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks import store
from benchmarks.store import TARGETS, Cell, Table, Target, Verdict, is_cell, judge
from lmu_scaling.paper import style
from lmu_scaling.paper.axes import log_axis
from lmu_scaling.paper.figures import complexity
from lmu_scaling.runtime import atomic_write, si

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
QUICK_PAGE = store.QUICK.with_suffix(".md")
MAX_WORSE = 8  # numbers that got worse, listed at the top
SECTIONS = {
    "layer": "Layer",
    "step": "Step and loss",
    "precision": "float32 and bfloat16",
    "paired": "Losses in bfloat16",
    "training": "Training",
    "data": "Data",
    "analysis": "Analysis",
    "workflow": "Workflow and whole run",
    "growth": "Growth",
}
MACHINE = {  # in this order; versions follow
    "processor": "{}",
    "cores": "{} cores",
    "memory_gb": "{} GB",
    "threads": "threads: {}",
    "clock": "{} seconds",
    "load": "load {}",
    "sgemm_gflops": "sgemm {} GFLOP/s",
    "fft_gflops": "FFT {} GFLOP/s",
}
MADE = (
    "Made by `make bench` from `benchmarks/results.json`; `python -m benchmarks.<section>` measures one section again."
)
QUICK_MADE = (
    "Made by `make bench-quick`: few rounds and small sizes of each section. Only `make bench` decides about targets."
)
HEAD = """# Performance

{made}
Rivals are timed in turns within one run, so ratios are more reliable than absolute numbers. "±" is half the distance
between the quartiles of the rounds; ▼ marks a number that got worse by more than its spread since it was last stored;
✗ marks a number that misses its target.
"""
SPEED = "LMU + implicit attention: forward and backward"
POINTS, SLOPES = "Growth with n: points", "Growth with n: exponents"
OURS, RIVAL = style.MARKS["lmu"][0], style.SUBDUED
MARKERS = {"S": "o", "M": "s", "L": "^"}


def build(results: Path, page: Path) -> str:
    sections = store.load(results)
    chapters = {name: sections.get(name, {}).get("tables", []) for name in SECTIONS}
    every = [table for tables in chapters.values() for table in tables]
    shared = in_common([table["machine"] for table in every])
    parts = [HEAD.format(made=QUICK_MADE if page == QUICK_PAGE else MADE)]
    parts += [summary(judge(every), worse(every), what_limits(sections))]
    parts += [f"Machine: {machine_line(shared)}.\n"] if shared else []
    parts += [
        f"![{caption.partition('.')[0]}](figures/{path.name})\n\n{caption}\n"
        for path, caption in draw_all(every, page.parent / "figures")
    ]
    for name, tables in chapters.items():
        if tables:
            shown = [without(table, shared) for table in tables if not table.get("hidden")]
            parts.append(chapter(SECTIONS[name], shown, sections[name]["remaining"], sections[name]["measured"]))
        else:
            parts.append(f"## {SECTIONS[name]}\n\nNot measured yet.\n")
    return "\n".join(parts)


# Summary -------------------------------------------------------------------------------------------------------------


def summary(verdicts: dict[str, Verdict], worse_lines: list[str], limits: dict[str, str]) -> str:
    """Missed targets with what limits them, then numbers that got worse, then all targets."""
    missed = {name: entry for name, entry in verdicts.items() if entry.word == "missed"}
    open_ = sum(entry.word in ("partly measured", "not measured") for entry in verdicts.values())
    met = "**All targets that were measured are met.**" if open_ else "**All targets are met.**"
    lines = [f"**Missed:** {line_of(entry)}  " for entry in missed.values()] or [met]
    reasons = dict.fromkeys(limits[name] for name in missed if limits.get(name))
    lines += ["", "What limits them:", "", *(f"* {reason}" for reason in reasons)] if reasons else []
    if open_:
        lines += ["", f"{open_} of {len(verdicts)} targets were not measured, or not at every size: see the table."]
    if worse_lines:
        lines += ["", "Worse than when last stored:", "", *(f"* {entry}" for entry in worse_lines[:MAX_WORSE])]
        more = len(worse_lines) - MAX_WORSE
        lines += [f"* … and {more} more, marked ▼ below"] if more > 0 else []
    lines += ["", "| target | limit | measured | verdict |", "|---|---|---|---|"]
    for entry in verdicts.values():
        lines.append(f"| {entry.target.words} | {limit(entry.target)} | {values_of(entry)} | {entry.word} |")
    return "\n".join(lines) + "\n"


def what_limits(sections: dict[str, Any]) -> dict[str, str]:
    """What each target's section says about the room for improvement."""
    found = {}
    for name, section in sections.items():
        cells = (entry for table in section["tables"] for row in table["rows"] for entry in row if is_cell(entry))
        found |= {entry["target"]: f"{SECTIONS[name]}: {section['remaining']}" for entry in cells if entry["target"]}
    return found


def line_of(entry: Verdict) -> str:
    return f"{entry.target.words}: {values_of(entry)} ({limit(entry.target)})."


def values_of(entry: Verdict) -> str:
    return ", ".join(amount(value, entry.target.unit) for value in entry.values) or "–"


def limit(target: Target) -> str:
    return f"{target.sense} {amount(target.limit, target.unit)}"


def worse(tables: list[Table]) -> list[str]:
    return [
        f"{table['title']}, {', '.join(key)}: {amount(entry['value'], entry['unit'])} "
        f"(was {amount(entry['was'], entry['unit'])})"
        for table in tables
        for key, entry in store.cells(table).items()
        if "was" in entry
    ]


# Chapters ------------------------------------------------------------------------------------------------------------


def chapter(title: str, shown: list[Table], remaining: str, measured: str) -> str:
    """Tables, what could still be improved, and machine facts that differ from the rest of the page."""
    shared = in_common([table["machine"] for table in shown])
    parts = [f"## {title}\n", *(render(without(table, shared), level=3) for table in shown)]
    if remaining:
        parts.append(f"**Room for improvement:** {remaining}\n")
    return "\n".join([*parts, f"*{'; '.join([f'measured {measured}', *filter(None, [machine_line(shared)])])}*\n"])


def in_common(machines: list[dict[str, Any]]) -> dict[str, Any]:
    """The facts that are the same in all."""
    first = machines[0] if machines else {}
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in machines)}


def without(table: Table, said: dict[str, Any]) -> Table:
    return table | {"machine": {key: value for key, value in table["machine"].items() if said.get(key) != value}}


def render(table: Table, level: int = 2) -> str:
    """One table as Markdown, with its notes and the machine below it."""
    columns = table["columns"]
    lines = [f"{'#' * level} {table['title']}", "", "| " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * len(columns))
    lines += ["| " + " | ".join(show(value) for value in row) + " |" for row in table["rows"]]
    lines += [""] + [f"* {note}" for note in table["notes"]]
    if machine := table["machine"]:
        lines.append(f"* Machine: {machine_line(machine)}.")
    return "\n".join(lines) + "\n"


def machine_line(machine: dict[str, Any]) -> str:
    first = [words.format(show(machine[key])) for key, words in MACHINE.items() if key in machine]
    return ", ".join([*first, *(f"{key} {show(value)}" for key, value in machine.items() if key not in MACHINE)])


# Numbers as text -----------------------------------------------------------------------------------------------------


def show(value: Any) -> str:
    if is_cell(value):
        return show_cell(value)
    if value is None:
        return "–"
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).replace("|", "\\|")


def show_cell(entry: Cell) -> str:
    if entry["unit"] == store.INTERVAL:
        return f"{entry['value']:.2f} [{entry['low']:.2f}, {entry['high']:.2f}]" + _was(entry)
    text = amount(entry["value"], entry["unit"])
    half = (entry["high"] - entry["low"]) / 2
    if half > 0 and entry["value"]:
        share = half / abs(entry["value"])
        text += f" ± {share:.0%}" if share >= 0.005 else " ± <1%"
    text += " ✗" if entry["target"] and not TARGETS[entry["target"]].met(entry["value"]) else ""
    return text + _was(entry)


def _was(entry: Cell) -> str:
    return f" ▼ was {amount(entry['was'], entry['unit'])}" if "was" in entry else ""


def amount(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.3g}%"
    return number(value) + (unit if unit != store.INTERVAL else "")


def number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# Figures -------------------------------------------------------------------------------------------------------------


def draw_all(tables: list[Table], folder: Path) -> list[tuple[Path, str]]:
    """Draw what has been measured; returns files and captions."""
    found, by_title = [], {table["title"]: table for table in tables}
    with style.context():
        for name, draw in (("layer", draw_layer), ("growth", draw_growth)):
            drawn = draw(by_title)
            if drawn is not None:
                path = folder / f"performance_{name}.png"
                save_png(drawn[0], path)
                found.append((path, drawn[1].strip()))
    return found


def save_png(figure: Figure, path: Path) -> None:
    """The page needs no PDF and no SVG."""
    with tempfile.TemporaryDirectory() as scratch:
        style.save(figure, pdf=Path(scratch) / "a.pdf", svg=Path(scratch) / "a.svg", png=path)


def draw_layer(tables: dict[str, Table]) -> tuple[Figure, str] | None:
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


def draw_growth(tables: dict[str, Table]) -> tuple[Figure, str] | None:
    """The figure behind Table 1, drawn from the benchmark's points."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the page of the last quick run")
    args = parser.parse_args()
    results, page = (store.QUICK, QUICK_PAGE) if args.quick else (store.RESULTS, PAGE)
    text = build(results, page)
    with atomic_write(page) as file:
        file.write(text)
    print(f"wrote {page.relative_to(PAGE.parents[1])}")


if __name__ == "__main__":
    main()
