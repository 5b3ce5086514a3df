"""Handlers of the verbs `figure` and `table`: find the module, give it its inputs, write every format."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ResultsError
from lmu_scaling.paper import style, tabulate
from lmu_scaling.paper.inputs import inputs_of
from lmu_scaling.runtime import atomic_write


def figure(name: str, results: Path, look: Any, pdf: Path, svg: Path, png: Path, caption: Path) -> None:
    """Draw one figure of `results` (the experiment's folder) in three formats, with its caption."""
    with style.context():
        drawing, text = draw(name, results, style.Look.of(look))
        style.save(drawing, pdf=Path(pdf), svg=Path(svg), png=Path(png))
    with atomic_write(caption) as file:
        file.write(to_rst(text) + "\n")


def to_rst(text: str) -> str:
    """Plain words as reStructuredText, which `snakemake --report` reads: marks lose their meaning."""
    return re.sub(r"([\\*`_|])", r"\\\1", text)


def from_rst(text: str) -> str:
    """The inverse of `to_rst`."""
    return re.sub(r"\\(.)", r"\1", text)


def table(name: str, results: Path, look: Any, tex: Path, csv: Path, md: Path) -> None:
    """Write one table of `results` as LaTeX, CSV and Markdown."""
    content = rows(name, results, style.Look.of(look))
    for path, write in ((tex, tabulate.latex), (csv, tabulate.csv_text), (md, tabulate.markdown)):
        with atomic_write(path) as file:
            file.write(write(content))


def draw(name: str, results: Path, look: style.Look) -> tuple[Any, str]:
    """The figure and its caption; call it inside `style.context()`."""
    paths = _found("figure", name, results)
    drawing, caption = importlib.import_module(f"lmu_scaling.paper.figures.{name}").draw(paths, look)
    return drawing, " ".join(caption.split())


def rows(name: str, results: Path, look: style.Look) -> tabulate.Table:
    paths = _found("table", name, results)
    return importlib.import_module(f"lmu_scaling.paper.tables.{name}").rows(paths, look)


def _found(kind: str, name: str, results: Path) -> dict[str, Path]:
    paths = {entry: Path(results) / entry for entry in inputs_of(kind, name)}
    if missing := [str(path) for path in paths.values() if not path.is_file()]:
        raise ResultsError(
            f"the {kind} {name!r} needs results that are not there",
            ", ".join(missing),
            "run the workflow for this experiment first",
        )
    return paths
