"""Figure 5: test loss against model size when the transformer is trained on more tokens (the paper: ten times)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmu_scaling.paper import load, loss_vs_size
from lmu_scaling.paper.style import Look

INPUTS = ("analysis/runs.csv", "analysis/curves.csv")
OURS = ("lmu", "lmu_attention")


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = load.runs(inputs["analysis/runs.csv"], loss_vs_size.RUN_COLUMNS)
    curves = load.table(inputs["analysis/curves.csv"], loss_vs_size.CURVE_COLUMNS)
    series, references = contents(runs)
    figure = loss_vs_size.loss_against_n(runs, curves, series, references, look)
    several = sum(entry.variant == "transformer" for entry in series) > 1
    missing = "" if several else "No transformer was trained on a further token budget in this experiment."
    return figure, f"{loss_vs_size.caption(runs, curves, series, references, look)} {missing}"


def contents(runs: pd.DataFrame) -> tuple[list[loss_vs_size.Series], list[loss_vs_size.Reference]]:
    """Both LMU models at the main budget, the transformer at every budget from there on, and the printed laws."""
    series = [loss_vs_size.Series(name, 1.0) for name in OURS]
    budgets = sorted({m for m in runs.loc[runs["variant"] == "transformer", "multiple"] if m >= 1})
    series += [loss_vs_size.Series("transformer", multiple) for multiple in budgets or [1.0]]
    references = [loss_vs_size.Reference(name, 1.0) for name in ("paper_lmu", "paper_lmu_attention", "kaplan")]
    return series, [*references, loss_vs_size.Reference("kaplan", 10.0)]
