"""Learning rate: linear warm-up, cosine to zero, and reduce-on-plateau as a multiplier (paper, section 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


def cosine(step: int, steps: int, warmup: float) -> float:
    """Share of the peak rate at `step` (0-based): rises linearly over `warmup`·steps, then falls to 0 at `steps`."""
    rise = max(1, round(warmup * steps)) if warmup else 0
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


@dataclass
class Plateau:
    """Multiplies the rate by `factor` each time validation has not fallen by `min_delta` for `patience` validations."""

    factor: float = 1.0
    patience: int = 1 << 62
    min_delta: float = 0.0
    multiplier: float = 1.0
    best: float | None = None
    waited: int = 0

    def update(self, validation_loss: float) -> None:
        if self.best is None or validation_loss < self.best - self.min_delta:
            self.best, self.waited = validation_loss, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.multiplier *= self.factor
            self.waited = 0

    def state(self) -> dict[str, Any]:
        return {"multiplier": self.multiplier, "best": self.best, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        self.multiplier, self.best, self.waited = state["multiplier"], state["best"], state["waited"]
