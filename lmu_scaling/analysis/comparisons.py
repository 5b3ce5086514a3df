"""Pairwise comparison of variants at equal N and equal tokens: loss differences with intervals (section 5, figure 3).

Six sizes and one seed leave ±0.004 on an exponent, so losses are compared too: at each size, and at the geometric-mean
N of the sizes both variants have. A draw perturbs both variants together, so effects of the shared test text cancel.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells

Array = NDArray[np.float64]
PAPER_BASELINE = "transformer"  # the paper's baseline, GPT-2 style
# Every transformer that claims are judged against, and what the ids of those verdicts end in.
BASELINES = {PAPER_BASELINE: "", "transformer_modern": "m", "transformer_rotary": "r"}


def loss_at(cells: Cells, variant: str, sizes: list[str], multiple: float, n: float) -> tuple[float, Array] | None:
    """Loss of a variant at n parameters, from a straight line in ln L and ln N through `sizes`; estimate and draws."""
    rows = [row for row in cells.select(variant, multiple) if cells.frame.loc[row, "size"] in sizes]
    if len(rows) < 2:
        return None
    x = np.log(cells.frame.loc[rows, "n"].to_numpy(float))
    weights = np.full(len(x), 1 / len(x))
    if cells.distinct_n(rows) > 1:  # else all sizes have the same N, and their mean is used
        offset = x - x.mean()
        weights += (np.log(n) - x.mean()) * offset / (offset @ offset)  # least squares, evaluated at n
    return float(np.exp(cells.point[rows] @ weights)), np.exp(cells.log_loss[:, rows] @ weights)


def shared_sizes(cells: Cells, variants: tuple[str, ...], multiple: float = 1.0) -> list[str]:
    """Sizes that all variants have, in order of N."""
    found = [
        list(cells.frame.loc[cells.select(variant, multiple), "size"])
        for variant in variants  # an absent variant has no sizes
    ]
    return [size for size in found[0] if all(size in other for other in found)]


def mean_n(cells: Cells, variants: tuple[str, ...], sizes: list[str], multiple: float = 1.0) -> float:
    mask = cells.frame["variant"].isin(variants) & cells.frame["size"].isin(sizes)
    mask &= cells.frame["multiple"] == multiple
    return float(np.exp(np.log(cells.frame.loc[mask, "n"].astype(float)).mean()))


def comparisons(cells: Cells) -> list[dict[str, Any]]:
    """loss(b) - loss(a) for each pair; positive if a is better."""
    variants = list(dict.fromkeys(cells.frame["variant"]))
    return [entry for a, b in combinations(variants, 2) if (entry := compare(cells, a, b)) is not None]


def compare(cells: Cells, a: str, b: str, multiple: float = 1.0) -> dict[str, Any] | None:
    sizes = shared_sizes(cells, (a, b), multiple)
    if not sizes:
        return None
    n = mean_n(cells, (a, b), sizes, multiple)
    entry: dict[str, Any] = {"a": a, "b": b, "multiple": multiple, "n": n, "sizes": len(sizes)}
    per_size = [_at_size(cells, a, b, size, multiple) for size in sizes]
    loss_a, loss_b = (loss_at(cells, variant, sizes, multiple, n) for variant in (a, b))
    if loss_a is not None and loss_b is not None:
        entry |= _difference(cells, loss_a, loss_b)
    else:  # a single size
        entry |= {key: per_size[0][key] for key in ("difference", "low", "high")}
    return entry | {"per_size": per_size}


def _at_size(cells: Cells, a: str, b: str, size: str, multiple: float) -> dict[str, Any]:
    rows = [int(cells.select(variant, multiple, size)[0]) for variant in (a, b)]
    sides = [(float(np.exp(cells.point[row])), np.exp(cells.log_loss[:, row])) for row in rows]
    return {"size": size, "n": float(cells.frame.loc[rows, "n"].mean())} | _difference(cells, *sides)


def _difference(cells: Cells, a: tuple[float, Array], b: tuple[float, Array]) -> dict[str, float]:
    low, high = cells.interval(b[1] - a[1])
    return {"difference": b[0] - a[0], "low": float(low), "high": float(high)}


def gain_ratios(cells: Cells) -> list[dict[str, Any]]:
    found = [gain_ratio(cells, variant, baseline) for baseline in BASELINES for variant in ("lmu", "lmu_attention")]
    return [entry for entry in found if entry is not None]


def gain_ratio(
    cells: Cells, variant: str = "lmu", baseline: str = PAPER_BASELINE, multiple: float = 1.0
) -> dict[str, Any] | None:
    """(transformer - variant) / (LSTM - transformer), at the geometric-mean N (abstract)."""
    trio = (variant, baseline, "lstm")
    sizes = shared_sizes(cells, trio, multiple)
    if len(sizes) < 2:
        return None
    n = mean_n(cells, trio, sizes, multiple)
    sides = [loss_at(cells, name, sizes, multiple, n) for name in trio]
    (ours, ours_b), (base, base_b), (lstm, lstm_b) = [side for side in sides if side is not None]
    low, high = cells.interval((base_b - ours_b) / (lstm_b - base_b))
    return {
        "variant": variant,
        "baseline": baseline,
        "n": n,
        "sizes": len(sizes),
        "gain": base - ours,
        "gain_of_transformer": lstm - base,
        "ratio": (base - ours) / (lstm - base),
        "low": float(low),
        "high": float(high),
        "denominator_positive_share": float(np.mean(lstm_b > base_b)),
    }
