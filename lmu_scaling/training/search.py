"""The search for a cell's learning rate and embedding scale, as a pure function of the trials so far.

A cell is a variant at a size and token budget. Every cell gets the same number of trials: first a grid, then one trial
after the other where the best point so far needs a neighbour. So a grid whose optimum lies on an edge is extended, and
one whose optimum is bracketed is refined. Both axes are logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lmu_scaling.errors import ResultsError

TOLERANCE = 0.005  # nats
SAME = 1e-6  # points whose logarithms differ by less are the same
AXES = ("learning_rate", "embedding_scale")


@dataclass(frozen=True)
class Trial:
    """One sweep run; a run that diverged has an infinite loss."""

    learning_rate: float
    embedding_scale: float
    loss: float

    @property
    def point(self) -> tuple[float, float]:
        return math.log(self.learning_rate), math.log(self.embedding_scale)


@dataclass(frozen=True)
class Steps:
    """Factors between neighbours on each axis; the embedding scale is fixed if its factor is None."""

    learning_rate: float
    embedding_scale: float | None = None

    def step(self, axis: int) -> float:
        return math.log(getattr(self, AXES[axis]))


def best_trial(trials: Sequence[Trial], where: str) -> Trial:
    """The lowest loss, or at its embedding scale the smallest learning rate that is as good within `TOLERANCE`.

    One run does not tell such losses apart; and sweep runs, being shorter, prefer rates too high for the run itself.
    """
    best = min(trials, key=lambda trial: (trial.loss, trial.point))
    if not math.isinf(best.loss):
        good = [trial for trial in _line(trials, best, axis=0) if trial.loss <= best.loss + TOLERANCE]
        return min(good, key=lambda trial: trial.point)
    raise ResultsError(
        f"every one of {len(trials)} sweep runs diverged", where, "use smaller values in training.tuning.learning_rates"
    )


def edges(trials: Sequence[Trial], steps: Steps, where: str) -> list[str]:
    """Axes on which the best trial has the smallest or largest value of all."""
    best = best_trial(trials, where)
    return [AXES[axis] for axis in _searched(steps) if _open_sides(trials, best, axis)]


def next_point(trials: Sequence[Trial], steps: Steps, where: str) -> tuple[float, float]:
    """Learning rate and embedding scale of the next trial.

    First beyond an edge, then beside the best trial where it has no neighbour with the same other value, then between.
    """
    best = best_trial(trials, where)
    for among in (lambda axis: trials, lambda axis: _line(trials, best, axis)):
        for axis in _searched(steps):
            if sides := _open_sides(among(axis), best, axis):
                return _moved(best, axis, sides[0] * steps.step(axis))
    return _refined(trials, best, steps)


def _searched(steps: Steps) -> list[int]:
    return [axis for axis in (0, 1) if getattr(steps, AXES[axis]) is not None]


def _open_sides(trials: Sequence[Trial], best: Trial, axis: int) -> list[int]:
    """Sides (+1: above, −1: below) on which no trial lies beyond the best one."""
    beyond = [trial.point[axis] - best.point[axis] for trial in trials]
    return [side for side in (1, -1) if not any(side * distance > SAME for distance in beyond)]


def _line(trials: Sequence[Trial], best: Trial, axis: int) -> list[Trial]:
    """The trials that differ from the best one along this axis only."""
    other = 1 - axis
    return [trial for trial in trials if abs(trial.point[other] - best.point[other]) <= SAME]


def _refined(trials: Sequence[Trial], best: Trial, steps: Steps) -> tuple[float, float]:
    """Half-way to the better neighbour, on the axis where the neighbours are farthest apart in steps."""
    gaps = []
    for axis in _searched(steps):
        away = [(trial.point[axis] - best.point[axis], trial.loss) for trial in _line(trials, best, axis)]
        high = min((distance, loss) for distance, loss in away if distance > SAME)
        low = max((distance, -loss) for distance, loss in away if distance < -SAME)
        toward = high[0] if high[1] <= -low[1] else low[0]
        gaps.append((round((high[0] - low[0]) / steps.step(axis), 3), -axis, toward / 2))
    _, axis, move = max(gaps)
    return _moved(best, -axis, move)


def _moved(best: Trial, axis: int, by: float) -> tuple[float, float]:
    """Rounded to four digits, so that a spec is readable and does not depend on the last bit of a logarithm."""
    point = list(best.point)
    point[axis] += by
    rate, scale = (float(f"{math.exp(value):.4g}") for value in point)
    return (rate, best.embedding_scale) if axis == 0 else (best.learning_rate, scale)
