"""The search for learning rate and embedding scale: it brackets the optimum, extends edges, and is deterministic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.errors import ResultsError
from lmu_scaling.training.search import Steps, Trial, best_trial, edges, next_point

STEPS = Steps(2.5, 7.0)


def bowl(rate: float, scale: float, best: tuple[float, float]) -> float:
    return 4 + math.log(rate / best[0]) ** 2 + 0.1 * math.log(scale / best[1]) ** 2


def search(best: tuple[float, float], trials: int, steps: Steps = STEPS) -> list[Trial]:
    points = [(0.006, 7.0), (0.015, 7.0)]
    found = [Trial(rate, scale, bowl(rate, scale, best)) for rate, scale in points]
    while len(found) < trials:
        rate, scale = next_point(found, steps, "cell")
        found.append(Trial(rate, scale, bowl(rate, scale, best)))
    return found


def test_an_edge_is_extended_until_the_optimum_is_bracketed():
    found = search((0.03, 7.0), 3)
    assert found[2].learning_rate == pytest.approx(0.0375)  # the next one beyond 0.015
    assert edges(found[:2], STEPS, "cell") == ["learning_rate", "embedding_scale"]
    assert edges(search((0.03, 7.0), 6), STEPS, "cell") == []


def test_an_optimum_beyond_what_the_trials_reach_is_marked():
    assert "learning_rate" in edges(search((10.0, 7.0), 5), STEPS, "cell")


def test_a_fixed_scale_is_never_changed():
    steps = Steps(2.5, None)
    found = search((0.002, 300.0), 7, steps)
    assert {trial.embedding_scale for trial in found} == {7.0}
    assert edges(found, steps, "cell") == []


def test_a_bracketed_optimum_is_refined():
    found = search((0.015, 7.0), 8)
    rates = sorted(trial.learning_rate for trial in found)
    assert any(0.006 < rate < 0.015 or 0.015 < rate < 0.0375 for rate in rates)


def test_runs_that_diverged_are_never_chosen_and_bracket_the_optimum():
    trials = [Trial(0.01, 1.0, 4.0), Trial(0.1, 1.0, math.inf), Trial(0.001, 1.0, 5.0)]
    assert best_trial(trials, "cell").learning_rate == 0.01
    assert edges(trials, Steps(10.0), "cell") == []
    with pytest.raises(ResultsError, match="diverged"):
        best_trial([Trial(0.1, 1.0, math.inf)], "cell")


@given(
    rate=st.floats(1e-3, 0.3),
    scale=st.floats(0.1, 500),
    trials=st.integers(3, 14),
)
def test_no_point_is_tried_twice_and_the_best_only_improves(rate, scale, trials):
    found = search((rate, scale), trials)
    points = {(trial.learning_rate, trial.embedding_scale) for trial in found}
    assert len(points) == len(found)
    losses = [min(trial.loss for trial in found[: i + 1]) for i in range(len(found))]
    assert losses == sorted(losses, reverse=True)
    assert search((rate, scale), trials) == found


@given(rate=st.floats(3e-3, 0.05), scale=st.floats(0.5, 100))
def test_enough_trials_find_the_optimum_within_a_step(rate, scale):
    found = search((rate, scale), 14)
    best = best_trial(found, "cell")
    assert edges(found, STEPS, "cell") == []
    assert abs(math.log(best.learning_rate / rate)) <= math.log(2.5) / 2 + 1e-3
    assert abs(math.log(best.embedding_scale / scale)) <= math.log(7) / 2 + 1e-3


def test_of_rates_that_one_run_cannot_tell_apart_the_smallest_is_chosen():
    trials = [Trial(rate, 50.0, loss) for rate, loss in ((0.012, 4.62), (0.03, 4.589), (0.047, 4.585), (0.075, 4.607))]
    assert best_trial(trials, "cell").learning_rate == 0.03
    assert best_trial([*trials, Trial(0.012, 7.0, 4.588)], "cell").learning_rate == 0.03, "at the best scale only"
    assert edges(trials, Steps(2.5), "cell") == []
