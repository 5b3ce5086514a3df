"""The best loss for a compute: where the formula knows it, at the bounds of what was trained, and its intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lmu_scaling.analysis.bootstrap import Cells
from lmu_scaling.analysis.frontier import frontier
from lmu_scaling.analysis.joint import growth_exponent
from lmu_scaling.analysis.laws import SumFit

E, A, B, a, b = 1.8, 480.0, 2090.0, 0.35, 0.37


def law(draws: int = 1, spread: float = 0.0) -> SumFit:
    rng = np.random.default_rng(0)
    coefficients = np.array([E, A, B]) * np.exp(spread * rng.normal(size=(draws, 1)))
    return SumFit(coefficients, np.tile([a, b], (draws, 1)), np.zeros((draws, 0)))


def cells(fewest: float, most: float, draws: int = 50) -> Cells:
    """Sizes of 10 million to 10 billion parameters; a token costs 6 N."""
    rows = [(n, tokens) for n in np.geomspace(1e7, 1e10, 5) for tokens in (fewest, most)]
    frame = pd.DataFrame(rows, columns=["n", "tokens"]).assign(variant="lmu", multiple=1.0)
    frame["flops_per_token"] = 6 * frame["n"]
    flat = np.log(E + A * frame["n"].to_numpy() ** -a + B * frame["tokens"].to_numpy() ** -b)
    return Cells(frame, flat, np.tile(flat, (draws, 1)), {}, 0.95)


def test_it_finds_the_optimum_of_the_formula() -> None:
    found = frontier(cells(1e7, 1e13), {"lmu": (law(), law(50))})
    inside = found[found["edge"] == ""]
    assert len(inside) > 20
    growth = (a * A / (b * B)) ** (1 / (a + b))
    expected = growth * (inside["flops"] / 6) ** (b / (a + b))
    np.testing.assert_allclose(inside["n"], expected, rtol=0.04)  # the grid's steps are 3.5 %
    tokens = inside["flops"] / (6 * expected)
    np.testing.assert_allclose(inside["loss"], E + A * expected**-a + B * tokens**-b, rtol=1e-4)
    assert growth_exponent(law())[0] == pytest.approx(b / (a + b))


def test_it_stays_inside_what_was_trained_and_says_where_a_bound_decides() -> None:
    found = frontier(cells(1e12, 1e13), {"lmu": (law(), law(50))})  # so many tokens that the largest size would be best
    assert found["n"].between(1e7, 1e10 * 1.001).all() and found["tokens"].between(0.999e12, 1.001e13).all()
    assert (found["edge"] == "largest").any() and (found["edge"] != "smallest").any()
    assert found["loss"].is_monotonic_decreasing


def test_the_interval_is_that_of_the_draws() -> None:
    found = frontier(cells(1e7, 1e13, 400), {"lmu": (law(), law(400, spread=0.05))})
    width = np.log(found["high"] / found["low"])
    np.testing.assert_allclose(width, 2 * 1.96 * 0.05, rtol=0.15)


def test_without_an_identified_law_the_table_is_empty() -> None:
    assert list(frontier(cells(1e7, 1e9), {}).columns)[:3] == ["variant", "flops", "loss"]
