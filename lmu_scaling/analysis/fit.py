"""Fit the scaling laws of our runs, with intervals (section 5; docs/claims.md describes the method).

Reads `runs.csv` and the losses per test sequence; writes `fits.json`, `curves.csv`, `multipliers.csv`, `frontier.csv`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells, block_sums, make_cells, sum_intervals
from lmu_scaling.analysis.comparisons import comparisons, gain_ratios
from lmu_scaling.analysis.curves import all_curves
from lmu_scaling.analysis.frontier import frontier as compute_frontier
from lmu_scaling.analysis.joint import fit_one_joint, held_out
from lmu_scaling.analysis.laws import SumFit, curvature, fit_power, fit_sum, power_report, sum_report
from lmu_scaling.analysis.multipliers import multipliers as all_multipliers
from lmu_scaling.analysis.notes import notes
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import MAIN, PAPER_RECIPE, main_runs, read_table, write_csv
from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Folder, Input, Output, job
from lmu_scaling.paths import PAPER
from lmu_scaling.runtime import write_json

Array = NDArray[np.float64]
MIN_SIZES = {"power": 2, "saturating": 4}


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
    frontier: Output,
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
        frontier: frontier.csv
        paper: catalogue of the numbers the paper prints
    """
    printed, everything = load_paper(paper), read_table(table)
    rows, of_paper = main_runs(everything), main_runs(everything, PAPER_RECIPE)
    if rows.empty:
        raise ResultsError("every run is excluded", str(table), "see the column `excluded`")

    def cells_of(part: pd.DataFrame) -> Cells:
        return make_cells(part, block_sums(results, part["run"].tolist()), draws, confidence, seed)

    cells = cells_of(rows)
    powers, saturating, joint, laws = _fit_all(cells, printed)
    if len(of_paper):
        powers += _power_laws(cells_of(of_paper), printed, PAPER_RECIPE)
    write_json(
        fits,
        jsonable(
            {
                "confidence": confidence,
                "draws": draws,
                "power": powers,
                "saturating": saturating,
                "joint": joint,
                "held_out": [held_out(cells, name) for name in dict.fromkeys(cells.frame["variant"])],
                "comparisons": comparisons(cells),
                "gain": gain_ratios(cells),
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
    write_csv(
        multipliers, all_multipliers(cells, printed, reference, vocab, {name: law[1] for name, law in laws.items()})
    )
    write_csv(frontier, compute_frontier(cells, laws))
    return {"cells": len(cells.frame), "runs": len(rows)}


def _fit_all(
    cells: Cells, paper: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], dict[str, tuple[SumFit, SumFit]]]:
    saturating = [fit_one_saturating(cells, variant, multiple) for variant, multiple in _budgets(cells)]
    joint, laws = [], {}
    for variant in dict.fromkeys(cells.frame["variant"]):
        entry, law = fit_one_joint(cells, variant)
        joint.append(entry)
        if law is not None and entry["identified"]:
            laws[variant] = law
    return _power_laws(cells, paper, MAIN), saturating, joint, laws


def _power_laws(cells: Cells, paper: dict[str, Any], setting: str) -> list[dict[str, Any]]:
    return [fit_one_power(cells, *budget, paper) | {"setting": setting} for budget in _budgets(cells)]


def _budgets(cells: Cells) -> list[tuple[str, float]]:
    """Variants and token budgets, in the order of the table and of the budgets."""
    return [
        (variant, float(multiple))
        for variant in dict.fromkeys(cells.frame["variant"])
        for multiple in sorted(cells.frame.loc[cells.frame["variant"] == variant, "multiple"].unique())
    ]


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


# --------------------------------------------------------------------------------------------------------- output
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
