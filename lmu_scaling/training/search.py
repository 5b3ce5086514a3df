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

    def step(self, axis: int) -> float | None:
        factor = getattr(self, AXES[axis])
        return None if factor is None else math.log(factor)


def best_trial(trials: Sequence[Trial], where: str) -> Trial:
    """The lowest loss; of equal ones the smallest learning rate."""
    best = min(trials, key=lambda trial: (trial.loss, trial.point))
    if math.isinf(best.loss):
        raise ResultsError(
            f"every one of {len(trials)} sweep runs diverged",
            where,
            "use smaller values in training.tuning.learning_rates",
        )
    return best


def edges(trials: Sequence[Trial], steps: Steps, where: str) -> list[str]:
    """Axes on which no trial lies beyond the best one, on one of its sides."""
    best = best_trial(trials, where)
    return [AXES[axis] for axis in (0, 1) if steps.step(axis) is not None and _open_sides(trials, best, axis)]


def next_point(trials: Sequence[Trial], steps: Steps, where: str) -> tuple[float, float]:
    """Learning rate and embedding scale of the next trial."""
    best = best_trial(trials, where)
    for axis in (0, 1):
        step = steps.step(axis)
        sides = _open_sides(trials, best, axis) if step is not None else []
        if step is not None and sides:
            return _moved(best, axis, sides[0] * step)
    return _refined(trials, best, steps)


def _open_sides(trials: Sequence[Trial], best: Trial, axis: int) -> list[int]:
    """Sides (+1: above, −1: below) of the best point on which no trial lies along this axis."""
    line = _line(trials, best, axis)
    return [side for side in (1, -1) if not any(side * (value - best.point[axis]) > SAME for value, _ in line)]


def _line(trials: Sequence[Trial], best: Trial, axis: int) -> list[tuple[float, float]]:
    """Coordinate and loss of the trials that differ from the best one along this axis only."""
    other = 1 - axis
    return sorted((t.point[axis], t.loss) for t in trials if abs(t.point[other] - best.point[other]) <= SAME)


def _refined(trials: Sequence[Trial], best: Trial, steps: Steps) -> tuple[float, float]:
    """Half-way to the better neighbour, on the axis where the neighbours are farthest apart in steps."""
    gaps = []
    for axis in (0, 1):
        step = steps.step(axis)
        if step is None:
            continue
        line = _line(trials, best, axis)
        below = [(best.point[axis] - value, loss) for value, loss in line if value < best.point[axis] - SAME]
        above = [(value - best.point[axis], loss) for value, loss in line if value > best.point[axis] + SAME]
        low, high = min(below), min(above)
        toward = high[0] if high[1] <= low[1] else -low[0]
        gaps.append((round((low[0] + high[0]) / step, 3), -axis, toward / 2))
    _, axis, move = max(gaps)
    return _moved(best, -axis, move)


def _moved(best: Trial, axis: int, by: float) -> tuple[float, float]:
    """Rounded to four digits, so that a spec is readable and does not depend on the last bit of a logarithm."""
    point = list(best.point)
    point[axis] += by
    rate, scale = (float(f"{math.exp(value):.4g}") for value in point)
    return (rate, best.embedding_scale) if axis == 0 else (best.learning_rate, scale)
