"""Notes on the runs that a reader of the fits must know; they are shown under the verdicts."""

from __future__ import annotations

import pandas as pd

from lmu_scaling.analysis.table import UNTUNED, main_runs


def notes(table: pd.DataFrame) -> list[str]:
    rows, found = main_runs(table), []
    for variant, group in rows.groupby("variant", sort=False):
        if group["n_exact"].nunique() == 1:
            found.append(f"{variant}: one size only, so no law in N")
        found += _missing_seeds(str(variant), group) + _tuning(str(variant), group)
    if rows.groupby(["variant", "size", "multiple"])["seed"].nunique().max() == 1:
        found.append("one seed per cell: the spread between seeds is estimated in another way, see `noise`")
    if "epochs" in rows and rows["epochs"].max() > 1:
        found.append(f"the training text is repeated: up to {rows['epochs'].max():.1f} epochs")
    if rows["precision"].nunique() > 1:
        found.append("the runs differ in precision: those that do are not compared, and have no multiplier")
    found += [
        f"{run} is excluded: {why}" for run, why in table.loc[table["excluded"] != "", ["run", "excluded"]].values
    ]
    return found


def _missing_seeds(variant: str, group: pd.DataFrame) -> list[str]:
    expected, found = set(group["seed"]), []
    for (size, multiple), cell in group.groupby(["size", "multiple"], sort=False):
        missing = sorted(expected - set(cell["seed"]))
        if missing and multiple == 1:
            found.append(f"{variant} {size} x{multiple:g}: seeds {missing} are missing; the mean is over the others")
    return found


def _tuning(variant: str, group: pd.DataFrame) -> list[str]:
    found = []
    for edge, cells in group[group["tuning_edge"] != ""].groupby("tuning_edge", sort=True):
        names = dict.fromkeys(f"{size} x{multiple:g}" for size, multiple in cells[["size", "multiple"]].values)
        if edge == UNTUNED:
            found.append(f"{variant}: no sweep at {', '.join(names)}")
        else:
            what = str(edge).replace("_", " ").replace("+", " and ")
            found.append(f"{variant}: the best {what} lies on the edge of the sweep at {', '.join(names)}")
    return found
