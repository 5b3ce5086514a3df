"""Figure 3: test loss against model size, with our own baselines, fits, intervals, and the printed laws."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lmu_scaling.paper import load, loss_vs_size
from lmu_scaling.paper.style import Look

INPUTS = ("analysis/runs.csv", "analysis/curves.csv")


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = load.runs(inputs["analysis/runs.csv"], loss_vs_size.RUN_COLUMNS)
    curves = load.table(inputs["analysis/curves.csv"], loss_vs_size.CURVE_COLUMNS)
    series = [loss_vs_size.Series(name, 1.0) for name in look.order(runs["variant"])]
    references = loss_vs_size.printed_references(curves)
    figure = loss_vs_size.loss_against_n(runs, curves, series, references, look)
    return figure, loss_vs_size.caption(runs, curves, series, references, look)
