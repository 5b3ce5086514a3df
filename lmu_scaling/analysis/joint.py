"""Joint laws L(N, D) = E + A·N^-a + B·D^-b over separate trainings per token budget, and how well laws predict.

The law is fitted by the summed Huber loss of ln L (robust.py); least squares is reported beside it. The held-out
prediction fits a law without the largest size and without the largest budget, and predicts what was left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells, sum_intervals
from lmu_scaling.analysis.laws import SumFit, fit_power, fit_sum, sum_report
from lmu_scaling.analysis.robust import DELTA, fit_huber, huber_cost

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
MIN_SIZES = 3
MIN_BUDGETS = 3
MIN_SIZES_POWER = 3  # of a power law that predicts: two points fit any line


def fit_one_joint(cells: Cells, variant: str) -> tuple[dict[str, Any], tuple[SumFit, SumFit] | None]:
    """The law of one variant over all its budgets; its estimate and draws, if it could be fitted."""
    rows = cells.select(variant, multiple=None)
    sizes, budgets = cells.distinct_n(rows), int(cells.frame.loc[rows, "tokens"].nunique())
    entry: dict[str, Any] = {"variant": variant, "sizes": sizes, "budgets": budgets, "identified": False}
    if sizes < MIN_SIZES or budgets < MIN_BUDGETS:
        needs = f"needs {MIN_SIZES} sizes and {MIN_BUDGETS} token budgets, has {sizes} and {budgets}"
        return entry | {"fitted": False, "note": needs}, None
    squares, squares_drawn, report = _least_squares(cells, rows)
    point, drawn = _huber(cells, rows, squares_drawn)
    entry |= {"fitted": True, "method": f"Huber({DELTA:g}) on ln L", "points": len(rows)}
    entry |= sum_intervals(point, drawn, cells.confidence, "a", "b") | _goodness(point, cells.point[rows])
    entry["draws_converged"] = float(drawn.converged.mean())
    entry["size_exponent"] = float(growth_exponent(point)[0])
    entry["size_exponent_low"], entry["size_exponent_high"] = cells.interval(growth_exponent(drawn))
    entry["E_identified"] = bool(entry["E_low"] > 0)
    problem = _problem(entry)
    entry["identified"] = not problem
    entry["note"] = problem or ("" if entry["E_identified"] else "E is not identified: its interval covers 0")
    entry["least_squares"] = sum_intervals(squares, squares_drawn, cells.confidence, "a", "b") | report
    return entry, (point, drawn)


def growth_exponent(law: SumFit) -> Array:
    """b / (a + b): with it the best N grows with compute, if a token costs in proportion to N."""
    a, b = law.exponents.T
    return np.asarray(b / (a + b))


def _variables(cells: Cells, rows: Rows) -> list[Array]:
    return [cells.frame.loc[rows, name].to_numpy(float) for name in ("n", "tokens")]


def _huber(cells: Cells, rows: Rows, near: SumFit) -> tuple[SumFit, SumFit]:
    """The estimate from a grid of starts; draws from the estimate and from their own fit by least squares, `near`."""
    xs = _variables(cells, rows)
    point = fit_huber(xs, np.exp(cells.point[rows]))
    return point, fit_huber(xs, np.exp(cells.log_loss[:, rows]), starts=(point, near))


def _goodness(fit: SumFit, log_loss: Array) -> dict[str, Any]:
    residual = log_loss - np.log(fit.loss[0])
    spread = log_loss - log_loss.mean()
    return {
        "r2": float(1 - residual @ residual / (spread @ spread)) if spread @ spread > 0 else np.nan,
        "rmse_relative": float(np.sqrt(np.mean(residual**2))),
        "huber": float(huber_cost(residual)),
        "residuals": residual.tolist(),
        "converged": bool(fit.converged[0]),
    }


def _least_squares(cells: Cells, rows: Rows) -> tuple[SumFit, SumFit, dict[str, Any]]:
    xs = _variables(cells, rows)
    point, report = sum_report(xs, np.exp(cells.point[rows]))
    drawn = fit_sum(xs, np.exp(cells.log_loss[:, rows]))
    return point, drawn, report | {"draws_converged": float(drawn.converged.mean())}


def _problem(entry: dict[str, Any]) -> str:
    """Why the law must not be used: an exponent or a coefficient that the data do not determine."""
    for exponent in ("a", "b"):
        if entry[f"{exponent}_high"] > 4 * max(entry[f"{exponent}_low"], 1e-9):
            return f"{exponent} is not identified: its interval spans more than a factor of 4"
    if entry["A_low"] <= 0 or entry["B_low"] <= 0:
        return "a term of the law is indistinguishable from zero"
    return ""


# ------------------------------------------------------------------------------------------- held-out prediction
def held_out(cells: Cells, variant: str) -> dict[str, Any]:
    """Predict the largest size and the largest budget from the other cells.

    With 3 sizes and 3 budgets left, by the joint law; else the largest size at the main budget, by the power law.
    """
    rows = cells.select(variant, multiple=None)
    frame = cells.frame.loc[rows]
    inner = (frame["n"] < frame["n"].max()) & (frame["tokens"] < frame["tokens"].max())
    kept = rows[inner.to_numpy()]
    left = cells.frame.loc[kept]
    if left["n"].nunique() >= MIN_SIZES and left["tokens"].nunique() >= MIN_BUDGETS:
        point, drawn = _huber(cells, kept, _least_squares(cells, kept)[1])
        away = rows[~inner.to_numpy()]
        return _prediction(cells, variant, "joint", kept, away, _loss(cells, point, away), _loss(cells, drawn, away))
    return _largest_size(cells, variant)


def _largest_size(cells: Cells, variant: str) -> dict[str, Any]:
    rows = cells.select(variant)
    n = cells.frame.loc[rows, "n"].to_numpy(float)
    kept, away = rows[n < n.max(initial=0)], rows[n == n.max(initial=0)]
    if cells.distinct_n(kept) < MIN_SIZES_POWER:
        note = f"needs {MIN_SIZES_POWER + 1} sizes at the main budget, or one size and one budget more than a joint law"
        return {"variant": variant, "fitted": False, "note": note}
    inner, outer = (cells.frame.loc[part, "n"].to_numpy(float) for part in (kept, away))
    weights = cells.frame.loc[kept, "seeds"].to_numpy(float)
    predicted, drawn = (
        np.exp(fit_power(inner, values, weights).log_loss(outer))
        for values in (cells.point[None, kept], cells.log_loss[:, kept])
    )
    return _prediction(cells, variant, "power", kept, away, predicted, drawn)


def _loss(cells: Cells, fit: SumFit, rows: Rows) -> Array:
    """[b, rows]"""
    terms = [fit.coefficients[:, :1]]
    for j, x in enumerate(_variables(cells, rows)):
        terms.append(fit.coefficients[:, j + 1 : j + 2] * x[None] ** -fit.exponents[:, j : j + 1])
    return np.sum(np.broadcast_arrays(*terms), axis=0)


def _prediction(
    cells: Cells, variant: str, law: str, kept: Rows, away: Rows, predicted: Array, drawn: Array
) -> dict[str, Any]:
    """Predicted minus measured, in nats; a draw perturbs the fitted cells and the predicted ones together."""
    measured = np.exp(cells.point[away])
    errors = predicted[0] - measured
    low, high = cells.interval(drawn - np.exp(cells.log_loss[:, away]))
    entries = [
        {
            "size": cells.frame.loc[row, "size"],
            "multiple": float(cells.frame.loc[row, "multiple"]),
            "n": float(cells.frame.loc[row, "n"]),
            "tokens": float(cells.frame.loc[row, "tokens"]),
            "predicted": predicted[0, i],
            "measured": measured[i],
            "error": errors[i],
            "low": low[i],
            "high": high[i],
        }
        for i, row in enumerate(away)
    ]
    return {
        "variant": variant,
        "fitted": True,
        "law": law,
        "cells": len(kept),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "within": int(sum(entry["low"] <= 0 <= entry["high"] for entry in entries)),
        "predictions": entries,
    }
