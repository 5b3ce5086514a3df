"""Nuisance settings: is the difference between two models larger than what settings outside the claim change?

A comparison is inconclusive, whatever its interval says, if

* a compared cell is not tuned: no sweep, or the optimum lies on an edge of it (`edges`);
* a measured alternative setting improves the loser, at any size where it was tried, by at least the gap; or
* a finer sweep of the loser would: the parabola through the optimum of the sweep and its two neighbours on a
  logarithmic grid, which rise by r and s, has its minimum (r - s)² / 8(r + s) below the best trial. That is zero for an
  optimum in the middle and at most an eighth of the larger rise.

Only the loser counts: what improves the winner makes the gap larger. Runs of different precision are not compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lmu_scaling.analysis.claims.common import Evidence
from lmu_scaling.analysis.table import UNTUNED, main_runs

SETTINGS_TRIED = ["variant", "size", "multiple", "setting"]
LONG_BUDGET = 5.0  # from here on the learning rate is tuned for the budget itself
SHORTEST_SWEEP = 0.25  # of the run's length: after a tenth of it another rate is the best


def cells(evidence: Evidence, *variants: str, budgets_of: str = "") -> pd.DataFrame:
    """Runs that a comparison uses: of these variants at the main budget, and of one variant at every budget."""
    runs = main_runs(evidence.runs)
    return runs[runs["variant"].isin(variants) & ((runs["multiple"] == 1) | (runs["variant"] == budgets_of))]


def edges(runs: pd.DataFrame, accept: tuple[str, ...] = ("",)) -> str:
    """Cells without an optimum inside their sweep, and why; empty if there are none."""
    found = []
    for edge, group in runs[~runs["tuning_edge"].isin(accept)].groupby("tuning_edge", sort=True):
        what = "no sweep" if edge == UNTUNED else f"best {str(edge).replace('_', ' ').replace('+', ' and ')} on an edge"
        found.append(f"{what} at {_names(group)}")
    return "; ".join(found)


def short_sweeps(runs: pd.DataFrame, only_long: bool = False) -> str:
    """Cells at the main budget or at 5 times and more whose sweep was shorter than a quarter of the run."""
    concerned = runs["multiple"].ge(LONG_BUDGET) | (runs["multiple"].eq(1) & (not only_long))
    short = runs[concerned & (runs["tuning_edge"] != UNTUNED) & ~(runs["tuning_multiple"] >= SHORTEST_SWEEP)]
    return f"sweeps shorter than {SHORTEST_SWEEP:g} of the run at {_names(short)}" if len(short) else ""


def precisions(runs: pd.DataFrame) -> tuple[str, ...]:
    """A reason to refuse the comparison if its runs differ in precision."""
    found = runs.groupby("precision")["variant"].agg(lambda names: " and ".join(sorted(set(names))))
    if len(found) < 2:
        return ()
    return (f"one precision for all ({'; '.join(f'{who} in {what}' for what, who in found.items())})",)


def _names(runs: pd.DataFrame) -> str:
    cells = runs[["variant", "size", "multiple"]].drop_duplicates()
    return ", ".join(f"{variant} {size} x{multiple:g}" for variant, size, multiple in cells.values)


# ------------------------------------------------------------------------------------------------ effect and gap
def rival(evidence: Evidence, loser: str, gap: float) -> str:
    """The setting that improves the loser most, if by no less than the gap; else empty."""
    found = improvements(evidence.sensitivity, loser)
    if found.empty or found["improvement"].max() < gap:
        return ""
    best: Any = found.sort_values("improvement").iloc[-1]
    name = str(best["setting"]).replace("_", " ")
    change = (
        f"{name} {best['value']} instead of {best['reference']}" if best["value"] else f"a finer sweep of the {name}"
    )
    return (
        f"{change} lowers the loss of {loser} ({best['size']}) by {best['improvement']:.3f} nats; the gap is {gap:.3f}"
    )


def improvements(sensitivity: pd.DataFrame, variant: str) -> pd.DataFrame:
    """What each measured alternative, and a finer sweep on each axis, improves: setting, value, size, improvement."""
    own = sensitivity[sensitivity["variant"] == variant]
    other = own[own["kind"] == "alternative"].astype({"value": str, "reference": str})
    columns = ["size", "setting", "value", "reference"]
    rows = [other[columns].assign(improvement=-other["effect"].astype(float))]
    keys: Any
    for keys, trials in own[own["kind"] == "trial"].groupby(SETTINGS_TRIED, sort=False):
        gain = finer_sweep(trials)
        rows.append(pd.DataFrame([{"size": keys[1], "setting": keys[3], "value": "", "improvement": gain}]))
    return pd.concat(rows, ignore_index=True).dropna(subset=["improvement"])


def finer_sweep(trials: pd.DataFrame) -> float:
    """How far below the chosen trial another one lies, or the parabola through it and its neighbours goes."""
    reference = float(trials["reference"].iloc[0])
    rises = dict(zip(trials["value"].astype(float), trials["effect"].astype(float), strict=True))
    below = [value for value in rises if value < reference]
    above = [value for value in rises if value > reference]
    measured = max(0.0, -min(rises.values()))  # of rates that are equally good the smallest is chosen
    if not below or not above:
        return measured
    near = (max(below), min(above))
    x = np.log([near[0] / reference, near[1] / reference])
    r, s = (max(rises[value], 0.0) for value in near)  # f(x) = p x² + q x through both
    p = (r / x[0] - s / x[1]) / (x[0] - x[1])
    q = r / x[0] - p * x[0]
    return max(measured, float(q**2 / (4 * p)) if p > 0 else 0.0)


def unsettled(evidence: Evidence, a: str, b: str, difference: float, gap: float | None = None) -> str:
    """Why loss(b) - loss(a) decides nothing, though its interval may exclude zero; empty if it does decide."""
    if found := edges(cells(evidence, a, b)):
        return f"not tuned: {found}"
    return rival(evidence, b if difference > 0 else a, abs(difference) if gap is None else gap)
