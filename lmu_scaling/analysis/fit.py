"""Fit the scaling laws of our runs, with intervals (section 5; docs/claims.md describes the method).

Reads `runs.csv` and the losses per test sequence; writes `fits.json`, `curves.csv` and `multipliers.csv`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells, block_sums, make_cells, sum_intervals
from lmu_scaling.analysis.comparisons import comparisons, gain_ratio
from lmu_scaling.analysis.curves import all_curves
from lmu_scaling.analysis.laws import SumFit, curvature, fit_power, fit_sum, power_report, sum_report
from lmu_scaling.analysis.multipliers import multipliers as all_multipliers
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import read_table, usable, write_csv
from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Folder, Input, Output, job
from lmu_scaling.paths import PAPER
from lmu_scaling.runtime import write_json

Array = NDArray[np.float64]
MIN_SIZES = {"power": 2, "saturating": 4, "joint": 3}
MIN_BUDGETS = 3


@job
def fit(
    table: Input,
    results: Folder,
    draws: int,
    confidence: float,
    seed: int,
    reference: str,
    fits: Output,
    curves: Output,
    multipliers: Output,
    paper: Input = PAPER,
) -> dict[str, Any]:
    """Fit power laws with intervals; compute reference curves and multipliers at matched loss.

    Args:
        table: runs.csv
        results: folder results/<experiment>
        draws: bootstrap draws
        confidence: of the intervals
        seed: of the bootstrap
        reference: reading of the transformer's law
        fits: fits.json; problems are listed under `notes`
        curves: curves.csv
        multipliers: multipliers.csv
        paper: catalogue of the numbers the paper prints
    """
    printed, everything = load_paper(paper), read_table(table)
    rows = usable(everything)
    if rows.empty:
        raise ResultsError("every run is excluded", str(table), "see the column `excluded`")
    cells = make_cells(rows, block_sums(results, rows["run"].tolist()), draws, confidence, seed)
    powers, saturating, joint, joint_draws = _fit_all(cells, printed)
    write_json(
        fits,
        jsonable(
            {
                "confidence": confidence,
                "draws": draws,
                "power": powers,
                "saturating": saturating,
                "joint": joint,
                "comparisons": comparisons(cells),
                "gain": [entry for name in ("lmu", "lmu_attention") if (entry := gain_ratio(cells, name))],
                "noise": {
                    name: {"sigma_log": noise.sigma, "freedom": noise.freedom, "source": noise.source}
                    for name, noise in cells.noise.items()
                },
                "excluded": dict(everything.loc[everything["excluded"] != "", ["run", "excluded"]].values.tolist()),
                "notes": notes(everything),
            }
        ),
    )
    write_csv(curves, all_curves(cells, printed))
    vocab = int(rows["vocab"].iloc[0])
    write_csv(multipliers, all_multipliers(cells, printed, reference, vocab, joint_draws))
    return {"cells": len(cells.frame), "runs": len(rows)}


def _fit_all(
    cells: Cells, paper: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], dict[str, SumFit]]:
    powers, saturating, joint, joint_draws = [], [], [], {}
    for variant in dict.fromkeys(cells.frame["variant"]):
        for multiple in sorted(cells.frame.loc[cells.frame["variant"] == variant, "multiple"].unique()):
            powers.append(fit_one_power(cells, variant, multiple, paper))
            saturating.append(fit_one_saturating(cells, variant, multiple))
        entry, drawn = fit_one_joint(cells, variant)
        joint.append(entry)
        if drawn is not None and entry["identified"]:
            joint_draws[variant] = drawn
    return powers, saturating, joint, joint_draws


# ------------------------------------------------------------------------------------------------------ power law
def fit_one_power(cells: Cells, variant: str, multiple: float, paper: dict[str, Any]) -> dict[str, Any]:
    rows = cells.select(variant, multiple)
    law = paper["power_laws"].get(variant, {})
    entry: dict[str, Any] = {
        "variant": variant,
        "multiple": multiple,
        "tokens": float(cells.frame.loc[rows[0], "tokens"]),
        "sizes": len(rows),
        "seeds": int(cells.frame.loc[rows, "seeds"].min()),
        "seeds_max": int(cells.frame.loc[rows, "seeds"].max()),
        "paper_alpha": law.get("alpha"),
        "paper_n_c": law.get("n_c"),
    }
    if len(rows) < MIN_SIZES["power"]:
        return entry | {"fitted": False, "note": "one size only: no law can be fitted"}
    if len(rows) > cells.distinct_n(rows) == 1:
        return entry | {"fitted": False, "note": "all sizes have the same N: no law can be fitted"}
    n = cells.frame.loc[rows, "n"].to_numpy(float)
    weights = cells.frame.loc[rows, "seeds"].to_numpy(float)
    point, drawn = fit_power(n, cells.point[None, rows], weights), fit_power(n, cells.log_loss[:, rows], weights)
    report = power_report(n, cells.point[rows], weights)
    centre = np.exp(np.log(n).mean())
    at = np.array([centre])
    level_low, level_high = cells.interval(np.exp(drawn.log_loss(at)[:, 0]))
    entry |= {
        "fitted": True,
        "alpha": point.alpha[0],
        "n_c": _exp(point.log_nc[0]),
        "n_mean": centre,
        "n_min": n.min(),
        "n_max": n.max(),
        "loss_at_mean": np.exp(point.log_loss(at)[0, 0]),
        "loss_at_mean_low": level_low,
        "loss_at_mean_high": level_high,
    }
    entry["alpha_low"], entry["alpha_high"] = cells.interval(drawn.alpha)
    entry["n_c_low"], entry["n_c_high"] = map(_exp, cells.interval(np.where(drawn.alpha > 0, drawn.log_nc, np.inf)))
    entry |= {key: report[key] for key in ("r2", "rmse_log", "residuals", "covariance", "covariance_of", "converged")}
    entry |= _shape(cells, rows, n)
    return entry | {"leave_one_out": _leave_one_out(cells, rows, n)}


def _exp(log_value: float) -> float:
    """Infinite where exp would overflow: a nearly flat law has an enormous N_c."""
    return float(np.exp(log_value)) if not log_value > 700 else np.inf


def _shape(cells: Cells, rows: NDArray[np.int64], n: Array) -> dict[str, Any]:
    """Curvature of ln L in ln N, which is zero for a power law."""
    if cells.distinct_n(rows) < 3:
        return {"curvature": None, "curvature_low": None, "curvature_high": None}
    low, high = cells.interval(curvature(n, cells.log_loss[:, rows]))
    return {"curvature": curvature(n, cells.point[None, rows])[0], "curvature_low": low, "curvature_high": high}


def _leave_one_out(cells: Cells, rows: NDArray[np.int64], n: Array) -> list[dict[str, Any]]:
    if len(rows) < 3:
        return []
    found = []
    for index, row in enumerate(rows):
        keep = np.arange(len(rows)) != index
        if cells.distinct_n(rows[keep]) < MIN_SIZES["power"]:
            continue
        law = fit_power(n[keep], cells.point[None, rows[keep]])
        entry = {"size": cells.frame.loc[row, "size"], "alpha": law.alpha[0], "n_c": _exp(law.log_nc[0])}
        entry["predicted"] = np.exp(law.log_loss(n[index : index + 1])[0, 0])
        found.append(entry | {"measured": np.exp(cells.point[row])})
    return found


# ------------------------------------------------------------------------------------------------ sums of powers
def fit_one_saturating(cells: Cells, variant: str, multiple: float) -> dict[str, Any]:
    """E + A N^-α; E counts as identified only if its interval excludes zero."""
    rows = cells.select(variant, multiple)
    entry: dict[str, Any] = {"variant": variant, "multiple": multiple, "sizes": len(rows), "identified": False}
    if cells.distinct_n(rows) < MIN_SIZES["saturating"]:
        return entry | {"fitted": False, "note": f"needs {MIN_SIZES['saturating']} sizes"}
    n = cells.frame.loc[rows, "n"].to_numpy(float)
    point, report = sum_report([n], np.exp(cells.point[rows]))
    drawn = fit_sum([n], np.exp(cells.log_loss[:, rows]))
    entry |= {"fitted": True} | sum_intervals(point, drawn, cells.confidence, "alpha") | report
    entry["zero_share"] = float(np.mean(drawn.coefficients[:, 0] <= 0))
    entry["draws_converged"] = float(drawn.converged.mean())
    entry["identified"] = bool(entry["E_low"] > 0)
    entry["note"] = "" if entry["identified"] else "E is not identified: its interval covers 0"
    return entry


def fit_one_joint(cells: Cells, variant: str) -> tuple[dict[str, Any], SumFit | None]:
    """E + A N^-a + B D^-b over all budgets, each a training of its own."""
    rows = cells.select(variant, multiple=None)
    frame = cells.frame.loc[rows]
    sizes, budgets = cells.distinct_n(rows), frame["tokens"].nunique()
    entry: dict[str, Any] = {"variant": variant, "sizes": sizes, "budgets": budgets, "identified": False}
    if sizes < MIN_SIZES["joint"] or budgets < MIN_BUDGETS:
        needs = f"needs {MIN_SIZES['joint']} sizes and {MIN_BUDGETS} token budgets, has {sizes} and {budgets}"
        return entry | {"fitted": False, "note": needs}, None
    xs = [frame["n"].to_numpy(float), frame["tokens"].to_numpy(float)]
    point, report = sum_report(xs, np.exp(cells.point[rows]))
    drawn = fit_sum(xs, np.exp(cells.log_loss[:, rows]))
    entry |= {"fitted": True} | sum_intervals(point, drawn, cells.confidence, "a", "b") | report
    entry["draws_converged"] = float(drawn.converged.mean())
    entry["E_identified"] = bool(entry["E_low"] > 0)
    problem = _joint_problem(entry)
    entry["identified"] = not problem
    entry["note"] = problem or ("" if entry["E_identified"] else "E is not identified: its interval covers 0")
    return entry, drawn


def _joint_problem(entry: dict[str, Any]) -> str:
    """Why the law must not be used: an exponent or a coefficient that the data do not determine."""
    for exponent in ("a", "b"):
        if entry[f"{exponent}_high"] > 4 * max(entry[f"{exponent}_low"], 1e-9):
            return f"{exponent} is not identified: its interval spans more than a factor of 4"
    if entry["A_low"] <= 0 or entry["B_low"] <= 0:
        return "a term of the law is indistinguishable from zero"
    return ""


# --------------------------------------------------------------------------------------------------------- output
def notes(table: pd.DataFrame) -> list[str]:
    """Properties of the runs that a reader of the fits must know."""
    rows, found = usable(table), []
    for variant, group in rows.groupby("variant", sort=False):
        if group["n_exact"].nunique() == 1:
            found.append(f"{variant}: one size only, so no law in N")
        expected = set(group["seed"])
        for (size, multiple), cell in group.groupby(["size", "multiple"], sort=False):
            missing = sorted(expected - set(cell["seed"]))
            if missing and multiple == 1:
                found.append(
                    f"{variant} {size} x{multiple:g}: seeds {missing} are missing; the mean is over the others"
                )
        edges = (
            sorted(set(group.loc[~group["tuning_edge"].isin(["", "untuned"]), "size"]))
            if "tuning_edge" in group
            else []
        )
        if edges:
            found.append(f"{variant}: the best learning rate lies on the edge of the sweep at {', '.join(edges)}")
    if rows.groupby(["variant", "size", "multiple"])["seed"].nunique().max() == 1:
        found.append("one seed per cell: the spread between seeds is estimated in another way, see `noise`")
    if "epochs" in rows and rows["epochs"].max() > 1:
        found.append(f"the training text is repeated: up to {rows['epochs'].max():.1f} epochs")
    found += [
        f"{run} is excluded: {why}" for run, why in table.loc[table["excluded"] != "", ["run", "excluded"]].values
    ]
    return found


def jsonable(value: Any) -> Any:
    """Convert NumPy values for JSON; values that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
