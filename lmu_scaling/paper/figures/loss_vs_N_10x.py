"""Figure 5: the same comparison when the transformer is trained on more tokens (the paper: 13B against 130B)."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lmu_scaling.paper import read, scaling
from lmu_scaling.paper.style import Look

INPUTS = ("analysis/runs.csv", "analysis/curves.csv")
OURS = ("lmu", "lmu_attention")


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = read.runs(inputs["analysis/runs.csv"], scaling.RUN_COLUMNS)
    curves = read.table(inputs["analysis/curves.csv"], scaling.CURVE_COLUMNS)
    series = [scaling.Series(name, 1.0) for name in OURS]
    budgets = sorted({m for m in runs.loc[runs["variant"] == "transformer", "multiple"] if m >= 1})
    series += [scaling.Series("transformer", multiple) for multiple in budgets or [1.0]]
    references = [scaling.Reference("kaplan", 1.0), scaling.Reference("kaplan", 10.0)]
    figure = scaling.loss_against_n(runs, curves, series, references, look)
    missing = "" if len(budgets) > 1 else "No transformer was trained on a further token budget in this experiment."
    return figure, f"{scaling.caption(runs, curves, series, references, look)} {missing}"
