"""Draw a figure or make a table: find its module, check its inputs, write all formats."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.paper import style, tabulate
from lmu_scaling.paper.inputs import inputs_of
from lmu_scaling.runtime import atomic_write


@job
def figure(
    name: str, results: Folder, look: style.Look, pdf: Output, svg: Output, png: Output, caption: Output
) -> None:
    """Draw one figure, with a caption computed from the data.

    Args:
        name: a module in lmu_scaling/paper/figures/
        results: folder results/<experiment>
        look: names, colours and markers, as JSON
        pdf: vector figure for print
        svg: vector figure for the web
        png: bitmap
        caption: caption in reStructuredText
    """
    with style.context():
        drawing, text = draw(name, results, look)
        style.save(drawing, pdf=pdf, svg=svg, png=png)
    with atomic_write(caption) as file:
        file.write(to_rst(text) + "\n")


def to_rst(text: str) -> str:
    """Escape text for reStructuredText, which `snakemake --report` reads."""
    return re.sub(r"([\\*`_|])", r"\\\1", text)


def from_rst(text: str) -> str:
    """The inverse of `to_rst`."""
    return re.sub(r"\\(.)", r"\1", text)


@job
def paper_table(name: str, results: Folder, look: style.Look, tex: Output, csv: Output, md: Output) -> None:
    """Write one table as LaTeX, CSV and Markdown.

    Args:
        name: a module in lmu_scaling/paper/tables/
        results: folder results/<experiment>
        look: names, colours and markers, as JSON
        tex: LaTeX (booktabs)
        csv: CSV
        md: Markdown
    """
    content = rows(name, results, look)
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
