"""Multipliers: how much more a baseline needs to reach the same loss, in tokens, parameters, compute (figure 5).

Against our own transformer a multiplier is interpolated between measured budgets and never extrapolated: above the
largest one it is "> x" (`beyond`), below the smallest one "< x" (`below`). Against Kaplan's law it can be infinite,
because the law has a floor at every N; with a vocabulary other than GPT-2's, losses are not comparable and no such row
is written; nor is one for runs of different precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells, interval
from lmu_scaling.analysis.comparisons import BASELINES
from lmu_scaling.analysis.laws import SumFit
from lmu_scaling.analysis.reference import PowerLaw, TransformerLaw, power_laws, transformer_law

Array = NDArray[np.float64]
COLUMNS = [
    "quantity",
    "variant",
    "against",
    "size",
    "multiple",
    "n",
    "loss",
    "value",
    "low",
    "high",
    "infinite_share",
    "beyond",
]
COLUMNS += ["below", "beyond_share", "largest", "smallest", "text"]


def at_main_budget(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that match the loss of a run at the main token budget; older files have no others."""
    return table[table["multiple"] == 1] if "multiple" in table else table


def first_reach(log_x: Array, y_bk: Array, target_b: Array) -> Array:
    """ln x at which a falling curve first reaches the target, interpolated linearly between measured points.

    +inf: not reached at the largest x; -inf: already reached at the smallest.
    """
    order = np.argsort(log_x)
    x, y = log_x[order], y_bk[:, order]
    reached = y <= target_b[:, None]
    k = reached.argmax(axis=1)
    rows = np.arange(len(y))
    left = np.maximum(k - 1, 0)
    y0, y1 = y[rows, left], y[rows, k]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(y0 > y1, (y0 - target_b) / (y0 - y1), 0.0)
    inside = x[left] + share * (x[k] - x[left])
    return np.where(~reached.any(axis=1), np.inf, np.where(k == 0, np.where(y1 == target_b, x[0], -np.inf), inside))


def multipliers(
    cells: Cells, paper: dict[str, Any], reading: str, vocab: int, joint: dict[str, SumFit]
) -> pd.DataFrame:
    """All multipliers of the experiment, for each variant at each budget, and those that the printed laws imply."""
    rows = []
    for variant in dict.fromkeys(cells.frame["variant"]):
        for index in cells.select(variant, multiple=None):
            if variant not in BASELINES:
                for baseline in BASELINES:
                    rows += _against_ours(cells, int(index), baseline, joint.get(baseline))
            if vocab == paper["experiment"]["vocab"]:
                rows += _against_kaplan(cells, int(index), paper, reading)
    rows += paper_multipliers(paper, reading)
    return pd.DataFrame(rows, columns=COLUMNS)


# ------------------------------------------------------------------------------------------------- our transformer
def _against_ours(cells: Cells, index: int, baseline: str, joint: SumFit | None) -> list[dict[str, Any]]:
    cell: Any = cells.frame.loc[index]
    spent = cells.frame["tokens"].astype(float) * cells.frame["flops_per_token"]  # beyond 2^63 at the paper's scale
    same_size = cells.select(baseline, multiple=None, size=cell["size"])
    same_tokens = cells.select(baseline, multiple=cell["multiple"])
    own = {"tokens": cell["tokens"], "compute": spent[index], "parameters": cell["n"]}
    rows = []
    for quantity, candidates in (("tokens", same_size), ("parameters", same_tokens), ("compute", same_size)):
        if len(candidates) == 0:
            continue
        base = cells.frame.loc[candidates]
        if set(base["precision"]) != {cell["precision"]}:
            continue
        x = {"tokens": base["tokens"], "compute": spent[candidates], "parameters": base["n"]}
        log_x = np.log(x[quantity].to_numpy(float) / float(own[quantity]))
        point = first_reach(log_x, cells.point[None, candidates], cells.point[None, index])
        drawn = first_reach(log_x, cells.log_loss[:, candidates], cells.log_loss[:, index])
        row = _row(quantity, cell["variant"], baseline, cell, float(np.exp(cells.point[index])))
        row |= _measured(float(point[0]), drawn, log_x, cells.confidence)
        if quantity != "parameters" and joint is not None:
            n = np.array([float(base["n"].iloc[0])])
            floor = joint.coefficients[:, 0] + joint.coefficients[:, 1] * n ** -joint.exponents[:, 0]
            row["infinite_share"] = float(np.mean(np.exp(cells.log_loss[:, index]) <= floor))
        rows.append(row)
    return rows


def _measured(point: float, drawn: Array, log_x: Array, confidence: float) -> dict[str, Any]:
    # rounded, since exp(ln 5) is below 5 and would miss a budget of 5 times the tokens
    smallest, largest = (float(f"{np.exp(end):.12g}") for end in (log_x.min(), log_x.max()))
    low, high = interval(drawn, confidence)
    beyond, below = point == np.inf, point == -np.inf
    value = largest if beyond else smallest if below else float(np.exp(point))
    return {
        "value": value,
        "low": 0.0 if low == -np.inf else largest if low == np.inf else float(np.exp(low)),
        "high": np.inf if high == np.inf else smallest if high == -np.inf else float(np.exp(high)),
        "infinite_share": np.nan,
        "beyond": beyond,
        "below": below,
        "beyond_share": float(np.mean(drawn == np.inf)),
        "largest": largest,
        "smallest": smallest,
        "text": f"> {largest:.3g}" if beyond else f"< {smallest:.3g}" if below else f"{value:.3g}",
    }


# -------------------------------------------------------------------------------------------------- Kaplan's law
def _against_kaplan(cells: Cells, index: int, paper: dict[str, Any], reading: str) -> list[dict[str, Any]]:
    cell: Any = cells.frame.loc[index]
    loss = np.exp(cells.point[index])
    law = transformer_law(paper, "kaplan_comment" if reading == "literal" else reading)
    drawn = _kaplan_values(law, cell, np.exp(cells.log_loss[:, index]))
    point = _kaplan_values(law, cell, np.array([loss]))
    return [
        _row(quantity, cell["variant"], "kaplan", cell, float(loss))
        | _known(point[quantity][0], drawn[quantity], cells.confidence)
        for quantity in ("tokens", "parameters", "compute")
    ]


def _kaplan_values(law: TransformerLaw, cell: Any, loss: Array) -> dict[str, Array]:
    """Kaplan counts matrices only and 6 N FLOPs per token; our side is counted in the same way."""
    n, tokens = float(cell["n_kaplan"]), float(cell["tokens"])
    needed = law.steps(n, loss) * law.batch_tokens
    return {
        "tokens": needed / tokens,
        "parameters": law.parameters(loss, tokens / law.batch_tokens) / n,
        "compute": 6 * n * needed / (float(cell["flops_per_token_body"]) * tokens),
    }


def _known(value: float, drawn: Array, confidence: float) -> dict[str, Any]:
    low, high = interval(drawn, confidence)
    return {
        "value": value,
        "low": low,
        "high": high,
        "infinite_share": float(np.mean(np.isinf(drawn))),
        "beyond": False,
        "below": False,
        "beyond_share": 0.0,
        "largest": np.inf,
        "smallest": 0.0,
        "text": "∞" if np.isinf(value) else f"{value:.3g}",
    }


def paper_multipliers(paper: dict[str, Any], reading: str, draws: int = 4000) -> list[dict[str, Any]]:
    """Token multipliers implied by the paper's printed laws; the interval is the range that rounding of α allows."""
    rng = np.random.default_rng(0)
    law = transformer_law(paper, "kaplan_comment" if reading == "literal" else reading)
    half = float(paper["rounding"]["alpha"])
    tokens = float(paper["experiment"]["tokens"])
    rows = []
    for variant in ("lmu", "lmu_attention"):
        printed = power_laws(paper)[variant]
        wiggle, wiggle_kaplan = rng.uniform(-half, half, (2, draws))
        for size, n in paper["experiment"]["sizes"].items():
            loss = printed.loss(n)
            value = float(law.steps(n, loss)) * law.batch_tokens / tokens
            rounded = PowerLaw(printed.n_c, printed.alpha + wiggle).loss(n)
            excess = rounded - (n / law.n_c) ** -(law.alpha_n + wiggle_kaplan)
            drawn = law.steps(n, law.limit(n) + excess) * law.batch_tokens / tokens
            row = _row("tokens", f"paper_{variant}", "kaplan", {"size": size, "multiple": 1.0, "n": n}, float(loss))
            rows.append(row | _known(value, drawn, 1.0))
    return rows


def _row(quantity: str, variant: str, against: str, cell: Any, loss: float) -> dict[str, Any]:
    known = {"quantity": quantity, "variant": variant, "against": against, "loss": loss}
    known |= {"size": cell["size"], "multiple": float(cell["multiple"]), "n": float(cell["n"])}
    return dict.fromkeys(COLUMNS, np.nan) | known | {"beyond": False, "below": False, "text": ""}
