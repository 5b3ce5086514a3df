"""Two steps of every model on this machine: the throughput that the plan's hours are computed from."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from lmu_scaling import experiment
from lmu_scaling.runtime import progress
from lmu_scaling.sections import Config
from lmu_scaling.training.device import place
from lmu_scaling.training.loop import Trainer

STEPS = 2


class RandomTokens:
    """As much of a token store as the trainer needs; speed does not depend on which tokens they are."""

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab

    def windows(self, n: int) -> int:
        return 4096

    def gather(self, indices: Any, n: int) -> np.ndarray:
        return np.random.default_rng(0).integers(self.vocab, size=(len(indices), n + 1))


def throughput(config: Config, threads: int = 1) -> dict[str, float]:
    """Tokens per second of `<variant>-<size>`; the first step warms up and does not count."""
    cells = dict.fromkeys((run.variant, run.size) for run in experiment.runs(config))
    where, found = place("auto", "auto", threads), {}
    for variant, size in progress(list(cells), "rehearsal", len(cells), "models"):
        run = next(r for r in experiment.runs(config) if (r.variant, r.size) == (variant, size))
        spec = experiment.spec_of(config, run)
        spec["training"]["learning_rate"] = spec["training"]["learning_rate"] or 1e-3
        tokens = RandomTokens(config.tokens.vocab)
        trainer = Trainer(spec, tokens, tokens, where)  # type: ignore[arg-type]
        rows = torch.from_numpy(tokens.gather(range(spec["training"]["batch"]), trainer.context)).to(where.device)
        found[f"{variant}-{size}"] = rows[:, 1:].numel() / _seconds_per_step(trainer, rows)
    return found


def _seconds_per_step(trainer: Trainer, rows: torch.Tensor) -> float:
    best = float("inf")
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        trainer.gradients(rows[:, :-1], rows[:, 1:], _Silent())  # type: ignore[arg-type]
        trainer.optimiser.step(trainer.rules["learning_rate"])
        if trainer.place.device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


class _Silent:
    def say(self, text: str) -> None:
        """A rehearsal reports at its end."""
