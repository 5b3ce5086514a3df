"""How far each run lies from the fitted law of its variant and budget, one panel per variant."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import log_axis, set_log_limits
from lmu_scaling.paper.layers import Layers, legend
from lmu_scaling.paper.style import SUBDUED, Look, Mark, note
from lmu_scaling.runtime import si

INPUTS = ("analysis/runs.csv", "analysis/curves.csv")
BUDGET_MARKERS = "osv^D<>P"


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = load.runs(inputs["analysis/runs.csv"], "run variant size multiple seed n_exact tokens test_loss test_se")
    curves = load.table(inputs["analysis/curves.csv"], "kind name multiple n loss")
    table = residuals(runs, curves[curves["kind"] == "fit"].dropna(subset=["loss"]))
    variants = look.order(runs["variant"])
    figure, across = _figure(look, len(variants))
    marks = _marks(runs)
    plot = Layers("n_exact", "residual", "budget", marks, panel="variant").points(table)
    panels = plot.panels(figure, variants, across, x=True, y=True)
    for axes, variant in zip(panels, variants, strict=True):
        axes.set_title(look.label(variant), loc="left")
        axes.set_xscale("log")
        set_log_limits(axes, runs["n_exact"])
        log_axis(axes.xaxis, "N")
        axes.set_ylabel("Loss above its law [%]")
        _finish(axes, table[table["variant"] == variant])
    if len(marks) > 1:
        legend(figure, marks, len(marks) if look.wide(figure) else 2, line=False)
    return figure, _caption(table, look)


def residuals(runs: pd.DataFrame, laws: pd.DataFrame) -> pd.DataFrame:
    """Loss relative to the fitted law [%], with the standard error; runs without a law are left out.

    The stored points of a law lie on a straight line in log-log axes, so that reading it between them is exact.
    """
    found = []
    for _, law in laws.sort_values("n").groupby(["name", "multiple"]):
        variant, multiple = law["name"].iloc[0], law["multiple"].iloc[0]
        own = runs[(runs["variant"] == variant) & (runs["multiple"] == multiple)]
        fitted = np.exp(np.interp(np.log(own["n_exact"]), np.log(law["n"]), np.log(law["loss"])))
        error = 100 * own["test_se"].fillna(0) / fitted
        own = own.assign(residual=100 * (own["test_loss"] / fitted - 1), budget=_budget(multiple))
        found.append(own.assign(low=own["residual"] - error, high=own["residual"] + error))
    empty = runs.iloc[:0].assign(residual=0.0, budget="", low=0.0, high=0.0)
    return pd.concat([empty, *found], ignore_index=True)


def _budget(multiple: float) -> str:
    return f"{multiple:g}"


def _marks(runs: pd.DataFrame) -> dict[str, Mark]:
    """One grey and one marker per token budget: the panel says which variant it is."""
    budgets = runs.drop_duplicates("multiple").sort_values("multiple")
    greys = np.linspace(0.15, 0.6, len(budgets))
    rows = zip(budgets["multiple"], budgets["tokens"], greys, strict=True)
    return {
        _budget(multiple): Mark(f"{si(tokens)} tokens", str(round(grey, 2)), BUDGET_MARKERS[i % 8])
        for i, (multiple, tokens, grey) in enumerate(rows)
    }


def _figure(look: Look, count: int) -> tuple[Figure, int]:
    across = min(count, 3 if look.columns != 1 else 2)
    down = math.ceil(count / across)
    return look.figure(2, 0.6 + 1.45 * down, 0.6 + 1.4 * down), across


def _finish(axes: Axes, own: pd.DataFrame) -> None:
    axes.axhline(0, color=SUBDUED, linewidth=0.8, zorder=1)
    if own.empty:
        note(axes, "no law was fitted")


def _caption(table: pd.DataFrame, look: Look) -> str:
    text = (
        "Residuals: how far the test loss of each run lies above (positive) or below the fitted power law of its "
        "variant and token budget, one panel per variant; bars are standard errors over test sequences. A law that "
        "fits leaves no trend along N. "
    )
    for variant in look.order(table["variant"]):
        own = table.loc[table["variant"] == variant, "residual"]
        text += f"{look.label(variant)}: at most {own.abs().max():.1f}% over {len(own)} runs. "
    return text if len(table) else text + "No law was fitted: there are too few sizes. "
