"""Figure 3: test loss against model size, with our own baselines, fits and intervals, and the printed laws."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lmu_scaling.paper import read, scaling
from lmu_scaling.paper.style import Look

INPUTS = ("analysis/runs.csv", "analysis/curves.csv")


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = read.runs(inputs["analysis/runs.csv"], scaling.RUN_COLUMNS)
    curves = read.table(inputs["analysis/curves.csv"], scaling.CURVE_COLUMNS)
    series = [scaling.Series(name, 1.0) for name in look.order(runs["variant"])]
    references = [scaling.Reference(name, scaling.PRINTED_AT.get(name, 1.0)) for name in scaling.REFERENCES]
    figure = scaling.loss_against_n(runs, curves, series, references, look)
    return figure, scaling.caption(runs, curves, series, references, look)
