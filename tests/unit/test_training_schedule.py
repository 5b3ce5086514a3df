"""The learning rate at every step (paper, section 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.training.schedule import Plateau, cosine


def test_values_of_the_papers_schedule() -> None:
    steps, warmup = 25_000, 0.04
    assert cosine(0, steps, warmup) == pytest.approx(1 / 1000)  # 4 % of 25,000 steps rise linearly
    assert cosine(999, steps, warmup) == 1.0
    assert cosine(1000, steps, warmup) == 1.0
    assert cosine(13_000, steps, warmup) == pytest.approx(0.5)  # half-way down
    assert cosine(24_999, steps, warmup) == pytest.approx(0.0, abs=1e-8)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_never_negative_never_above_the_peak_and_ends_low(steps: int, warmup: float) -> None:
    shares = [cosine(step, steps, warmup) for step in range(0, steps, max(1, steps // 50))]
    assert all(0 <= share <= 1 for share in shares)


def test_plateau_multiplies_after_patience_and_forgets_after_an_improvement() -> None:
    rule = Plateau(factor=0.5, patience=2, min_delta=0.01)
    for loss in (3.0, 2.9, 2.9, 2.895):
        rule.update(loss)
    assert rule.multiplier == 0.5
    rule.update(2.0)
    rule.update(2.0)
    assert rule.multiplier == 0.5
    rule.update(2.0)
    assert rule.multiplier == 0.25


def test_plateau_state_survives_a_round_trip() -> None:
    rule = Plateau(factor=0.5, patience=3, min_delta=0.0)
    for loss in (3.0, 3.1, 3.2):
        rule.update(loss)
    other = Plateau(factor=0.5, patience=3, min_delta=0.0)
    other.restore(rule.state())
    rule.update(3.3)
    other.update(3.3)
    assert (rule.multiplier, rule.waited) == (other.multiplier, other.waited) == (0.5, 0)


def test_without_a_plateau_rule_the_multiplier_stays_one() -> None:
    rule = Plateau()
    for _ in range(100):
        rule.update(5.0)
    assert rule.multiplier == 1.0
