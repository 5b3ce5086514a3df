"""Robust joint laws: outliers do not decide them, SciPy finds nothing better; held-out cells are predicted."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from lmu_scaling.analysis.bootstrap import Cells
from lmu_scaling.analysis.joint import fit_one_joint, held_out
from lmu_scaling.analysis.laws import fit_sum
from lmu_scaling.analysis.robust import fit_huber, huber_cost
from tests.proofs.recovery import TRUTH, run, simulate


def test_a_noise_free_law_is_recovered():
    xs, _ = simulate(np.random.default_rng(0))
    loss = TRUTH["E"] + TRUTH["A"] * xs[0] ** -TRUTH["a"] + TRUTH["B"] * xs[1] ** -TRUTH["b"]
    found = {name: values[0] for name, values in fit_huber(xs, loss).parameters("a", "b").items()}
    assert found == pytest.approx(TRUTH, rel=1e-3)


def test_scipy_finds_no_lower_end():
    (n, d), loss = simulate(np.random.default_rng(1))
    fit = fit_huber([n, d], loss)

    def cost(p):
        log_loss = np.logaddexp(np.logaddexp(p[0], p[1] - p[2] * np.log(n)), p[3] - p[4] * np.log(d))
        return 1e3 * huber_cost(log_loss - np.log(loss))

    starts = [[np.log(1.8), 6, 0.35, 7.5, 0.36], [0.0, 5, 0.3, 10, 0.5], [0.5, 10, 0.5, 5, 0.3]]
    best = min(minimize(cost, start, method="L-BFGS-B").fun for start in starts)
    assert 1e3 * huber_cost(np.log(fit.loss[0]) - np.log(loss)) <= best * (1 + 1e-5)


def test_outliers_decide_least_squares_and_not_huber():
    """The long version, with 200 simulations, is tests/proofs/recovery.py."""
    robust, squares = [], []
    for seed in range(8):
        xs, loss = simulate(np.random.default_rng([7, seed]))
        squares.append(fit_sum(xs, loss))
        robust.append(fit_huber(xs, loss, starts=(squares[-1],)))
    errors = [abs(np.median([fit.exponents[0, 1] for fit in fits]) - TRUTH["b"]) for fits in (robust, squares)]
    assert errors[0] < 0.01
    assert errors[1] > 2 * errors[0]


def test_the_published_law_lies_within_its_intervals():
    hits = [run("Huber", 60, seed)[0] for seed in range(5)]
    assert np.mean([list(hit.values()) for hit in hits]) >= 0.8


def cells(e=1.7, bend=0.0, noise=0.002, sizes=4, budgets=4):
    rng = np.random.default_rng(0)
    rows = [
        {"variant": "lmu", "size": f"s{i}", "multiple": 2.0**j, "n": 6e3 * 2**i, "tokens": 2e6 * 2**j, "seeds": 2}
        for i in range(sizes)
        for j in range(budgets)
    ]
    frame = pd.DataFrame(rows)
    loss = e + 60 * frame["n"] ** -0.3 + 400 * frame["tokens"] ** -0.28
    loss += bend * ((frame["n"] == frame["n"].max()) | (frame["tokens"] == frame["tokens"].max()))
    point = np.log(loss.to_numpy()) + rng.normal(0, noise, len(frame))
    return Cells(frame, point, point + rng.normal(0, noise, (300, len(frame))), {}, 0.95)


def test_both_methods_are_reported():
    entry, drawn = fit_one_joint(cells(), "lmu")
    assert drawn is not None and entry["method"].startswith("Huber")
    for values in (entry, entry["least_squares"]):
        assert values["b_low"] <= values["b"] <= values["b_high"]


@pytest.mark.parametrize(("bend", "right"), [(0.0, True), (0.3, False)])
def test_what_was_left_out_is_predicted_if_it_follows_the_law(bend, right):
    found = held_out(cells(bend=bend), "lmu")
    assert (found["law"], found["cells"], len(found["predictions"])) == ("joint", 9, 7)
    assert (found["within"] >= 6) == right


def test_with_one_budget_the_power_law_predicts_the_largest_size():
    found = held_out(cells(budgets=1), "lmu")
    assert (found["law"], [entry["size"] for entry in found["predictions"]]) == ("power", ["s3"])
    assert not held_out(cells(sizes=3, budgets=1), "lmu")["fitted"]
