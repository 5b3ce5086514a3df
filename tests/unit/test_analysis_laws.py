"""Fits recover what generated the data, SciPy and closed forms agree, and intervals follow the noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from lmu_scaling import paths
from lmu_scaling.analysis.laws import curvature, fit_power, fit_sum, power_report, sum_report
from lmu_scaling.analysis.reference import load_paper, power_laws

N = np.array([55e3, 98e3, 203e3, 346e3, 498e3, 999e3])
PAPER = load_paper(paths.PAPER)


@pytest.mark.parametrize("name", ["lmu", "lmu_attention", "lstm"])
def test_the_papers_constants_come_back_from_points_generated_by_them(name):
    law = power_laws(PAPER)[name]
    fit = fit_power(N, np.log(law.loss(N)))
    assert fit.alpha[0] == pytest.approx(law.alpha, rel=1e-10)
    assert np.exp(fit.log_nc[0]) == pytest.approx(law.n_c, rel=1e-7)


@settings(deadline=None, max_examples=50)
@given(alpha=st.floats(0.01, 0.5), log_nc=st.floats(20, 40), seed=st.integers(0, 1000))
def test_scipy_and_the_closed_form_agree(alpha, log_nc, seed):
    y = alpha * (log_nc - np.log(N)) + np.random.default_rng(seed).normal(0, 0.01, len(N))
    closed, report = fit_power(N, y), power_report(N, y)
    assert report["alpha"] == pytest.approx(closed.alpha[0], abs=1e-8)
    slope, _ = np.polyfit(np.log(N), y, 1)
    assert closed.alpha[0] == pytest.approx(-slope, abs=1e-10)
    if closed.alpha[0] > 0.005:
        assert report["log_nc"] == pytest.approx(closed.log_nc[0], rel=1e-6)


def test_covariance_r2_and_residuals_are_the_textbook_ones():
    y = np.log(power_laws(PAPER)["lmu"].loss(N)) + np.array([1, -2, 1, 0.5, -1, 0.5]) * 1e-3
    report = power_report(N, y)
    x = np.log(N) - np.log(N).mean()
    _, covariance = curve_fit(lambda x, a, b: a + b * x, x, y)
    np.testing.assert_allclose(report["covariance"], covariance, atol=1e-12)
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    np.testing.assert_allclose(report["residuals"], residual, atol=1e-9)
    assert report["r2"] == pytest.approx(1 - residual.var() / y.var())


def test_weights_count_as_repeated_points():
    y = np.array([1.6, 1.55, 1.51])
    n = N[:3]
    repeated = fit_power(np.repeat(n, [1, 2, 3]), np.repeat(y, [1, 2, 3]))
    weighted = fit_power(n, y, np.array([1.0, 2.0, 3.0]))
    assert weighted.alpha[0] == pytest.approx(repeated.alpha[0], rel=1e-12)
    report = power_report(n, y, np.array([1.0, 2.0, 3.0]))
    assert report["alpha"] == pytest.approx(repeated.alpha[0], abs=1e-8)


def test_a_flat_or_rising_law_has_no_scale_but_a_level():
    rising = fit_power(N, np.stack([np.full(6, 1.5), 1.5 + 0.01 * np.log(N)]))
    assert np.isnan(rising.log_nc).all()
    np.testing.assert_allclose(rising.log_loss(N[:1])[:, 0], [1.5, 1.5 + 0.01 * np.log(N[0])])


@settings(deadline=None, max_examples=40)
@given(e=st.floats(0.5, 3), a=st.floats(0.1, 0.8), share=st.floats(0.2, 2))
def test_a_saturating_law_is_recovered_to_six_digits(e, a, share):
    coefficient = share * e * N[2] ** a
    loss = e + coefficient * N**-a
    fit, report = sum_report([N], loss)
    assert fit.coefficients[0, 0] == pytest.approx(e, rel=1e-6)
    assert fit.exponents[0, 0] == pytest.approx(a, rel=1e-6)
    assert fit.coefficients[0, 1] == pytest.approx(coefficient, rel=1e-5)
    assert report["r2"] == pytest.approx(1)


def test_a_saturating_fit_of_a_pure_power_law_puts_the_floor_at_zero():
    fit, _ = sum_report([N], power_laws(PAPER)["lmu"].loss(N))
    assert fit.coefficients[0, 0] == pytest.approx(0, abs=1e-3)
    assert fit.exponents[0, 0] == pytest.approx(0.072, abs=1e-4)


@pytest.mark.parametrize("truth", [(1.7, 400.0, 0.34, 410.0, 0.28), (1.0, 30.0, 0.2, 1000.0, 0.4)])
def test_a_joint_law_is_recovered_to_six_digits(truth):
    e, a_coefficient, a, b_coefficient, b = truth
    n, tokens = (grid.ravel() for grid in np.meshgrid(N[::2], np.array([0.5, 1, 2, 4]) * 1e9))
    loss = e + a_coefficient * n**-a + b_coefficient * tokens**-b
    fit, report = sum_report([n, tokens], loss)
    np.testing.assert_allclose(fit.coefficients[0], [e, a_coefficient, b_coefficient], rtol=1e-5)
    np.testing.assert_allclose(fit.exponents[0], [a, b], rtol=1e-6)
    assert report["converged"]


def test_draws_are_fitted_as_if_each_were_alone():
    rng = np.random.default_rng(0)
    loss = (1.7 + 60 * N**-0.3) * np.exp(rng.normal(0, 0.003, (20, 6)))
    together = fit_sum([N], loss)
    assert together.converged.all()
    for row in range(0, 20, 5):
        alone, _ = sum_report([N], loss[row])
        cost = [((fit - loss[row]) ** 2).sum() for fit in (together.loss[row], alone.loss[0])]
        assert cost[0] <= cost[1] * 1.01


def test_predictions_go_through_the_fitted_points():
    loss = 1.7 + 60 * N**-0.3
    fit, _ = sum_report([N], loss)
    np.testing.assert_allclose(fit.loss[0], loss, rtol=1e-7)


def test_curvature_is_zero_for_a_power_law_and_not_for_a_saturating_one():
    assert curvature(N, np.log(power_laws(PAPER)["lmu"].loss(N)))[0] == pytest.approx(0, abs=1e-10)
    assert curvature(N, np.log(1.7 + 60 * N**-0.3))[0] > 1e-3


def test_a_draw_that_no_law_can_follow_does_not_stop_the_others():
    """With two seeds a bootstrap draw may be negative: both coefficients are then held at zero."""
    loss = 2.0 + 30.0 * N**-0.3
    together = fit_sum([N], np.stack([loss, -loss, loss]))
    assert together.coefficients[0, 0] == pytest.approx(2.0, rel=1e-3)
    assert (together.coefficients[1] == 0).all()
