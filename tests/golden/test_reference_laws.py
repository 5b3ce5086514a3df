"""Golden numbers of the reference laws: the table that docs/claims.md prints, to three decimals."""

import numpy as np
import pytest

from lmu_scaling import paths
from lmu_scaling.analysis.reference import READINGS, load_paper, per_token_laws, power_laws, transformer_law
from lmu_scaling.errors import ResultsError

PAPER = load_paper(paths.PAPER)

# N: LMU, LMU_G, LSTM, transformer at 25k steps, at 250k, at infinity, and as literally printed
TABLE = {
    55e3: (4.871, 4.774, 5.240, 5.169, 5.026, 4.996, 5.873),
    100e3: (4.665, 4.581, 5.023, 4.949, 4.802, 4.771, 5.624),
    200e3: (4.438, 4.368, 4.781, 4.708, 4.555, 4.523, 5.343),
    500e3: (4.155, 4.100, 4.480, 4.413, 4.249, 4.215, 4.983),
    1e6: (3.953, 3.908, 4.265, 4.206, 4.032, 3.996, 4.718),
}


@pytest.mark.parametrize("n", TABLE)
def test_reference_losses_to_three_decimals(n):
    laws = power_laws(PAPER)
    kaplan, literal = transformer_law(PAPER), transformer_law(PAPER, "literal")
    computed = [laws[name].loss(n) for name in ("lmu", "lmu_attention", "lstm")]
    computed += [kaplan.loss(n, steps) for steps in (25_000, 250_000, np.inf)]
    computed += [literal.loss(n, 25_000)]
    np.testing.assert_allclose(computed, TABLE[n], atol=5.0001e-4)


def test_the_law_as_printed_does_not_depend_on_the_number_of_steps():
    literal = transformer_law(PAPER, "literal")
    losses = literal.loss(100e3, np.array([1, 25e3, 250e3, 1e12]))
    assert np.ptp(losses) == 0
    with pytest.raises(ResultsError, match="does not depend"):
        literal.steps(100e3, 4.9)


def test_the_law_as_printed_lies_above_the_lstm():
    n = np.geomspace(55e3, 1e6, 50)
    assert np.all(transformer_law(PAPER, "literal").loss(n, 25_000) > power_laws(PAPER)["lstm"].loss(n))


def test_the_two_readings_of_kaplan_differ_by_at_most_a_hundredth():
    n, steps = np.meshgrid(np.geomspace(55e3, 1e6, 40), [25e3, 250e3, 1e7])
    difference = transformer_law(PAPER, "kaplan_self").loss(n, steps) - transformer_law(PAPER).loss(n, steps)
    assert round(np.abs(difference).max(), 2) <= 0.01


@pytest.mark.parametrize("reading", READINGS[:2])
def test_steps_and_parameters_invert_the_law(reading):
    law = transformer_law(PAPER, reading)
    n, steps = np.array([55e3, 1e6]), np.array([25e3, 250e3])
    loss = law.loss(n, steps)
    np.testing.assert_allclose(law.steps(n, loss), steps, rtol=1e-8)
    np.testing.assert_allclose(law.parameters(law.loss(n, 25e3), 25e3), n, rtol=1e-8)


def test_the_printed_lmu_law_is_below_the_transformer_after_infinitely_many_steps():
    law, n = transformer_law(PAPER), np.geomspace(55e3, 1e6, 100)
    for name in ("lmu", "lmu_attention"):
        loss = power_laws(PAPER)[name].loss(n)
        assert np.all(loss < law.limit(n))
        assert np.all(np.isinf(law.steps(n, loss)))


def test_rounding_of_the_exponents_allows_a_finite_multiplier_at_1m_but_not_at_55k():
    """The printed alpha may stand for anything within half a unit of its last digit."""
    lmu = power_laws(PAPER)["lmu"]
    half = PAPER["rounding"]["alpha"]
    slowest = type(lmu)(lmu.n_c, lmu.alpha + half)  # a larger alpha means a larger loss below n_c
    law = transformer_law(PAPER)
    fastest = type(law)(**{**law.__dict__, "alpha_n": law.alpha_n - half})
    assert slowest.loss(1e6) > fastest.limit(1e6)
    assert slowest.loss(55e3) < law.limit(55e3)


def test_kaplans_smallest_per_token_curve():
    label, law = per_token_laws(PAPER)[0]
    assert "smallest" in label
    assert law.loss(1) == pytest.approx(7.2)
    assert law.loss(1024) == pytest.approx(4.0 + 3.2 * 1024**-0.47)
