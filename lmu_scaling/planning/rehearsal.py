"""Measured throughput of every model on this machine: two training steps after one warm-up step."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch

from lmu_scaling import experiment
from lmu_scaling.runtime import progress
from lmu_scaling.sections import Config
from lmu_scaling.spec import Run
from lmu_scaling.training.compute import compute_context
from lmu_scaling.training.loop import Trainer

STEPS = 2


class RandomTokens:
    """Stands in for a token store; speed does not depend on the token values."""

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab

    def windows(self, n: int) -> int:
        return 4096

    def gather(self, indices: Any, n: int) -> np.ndarray:
        return np.random.default_rng(0).integers(self.vocab, size=(len(indices), n + 1))


def measure_throughput(config: Config, threads: int = 1) -> dict[str, float]:
    """Tokens per second of each `<variant>-<size>`."""
    models: dict[str, Run] = {}
    for run in experiment.runs(config):
        models.setdefault(f"{run.variant}-{run.size}", run)
    compute, found = compute_context("auto", "auto", threads), {}
    for name, run in progress(models.items(), "rehearsal", len(models), "models"):
        forget_compiled_code()
        spec = experiment.spec_of(config, run)
        spec = spec.tuned(spec.training.learning_rate or 1e-3)
        tokens = RandomTokens(config.tokens.vocab)
        trainer = Trainer(spec, tokens, tokens, compute)  # type: ignore[arg-type]
        rows = torch.from_numpy(tokens.gather(range(spec.training.batch), trainer.context)).to(compute.device)
        found[name] = rows[:, 1:].numel() / _seconds_per_step(trainer, rows)
    return found


def forget_compiled_code() -> None:
    """Begin a model like a new process: after eight shapes of one function torch.compile would run it uncompiled."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    torch.cuda.empty_cache()


def _seconds_per_step(trainer: Trainer, rows: torch.Tensor) -> float:
    """Time of the fastest step."""
    best = float("inf")
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        trainer.gradients(rows[:, :-1], rows[:, 1:], _Silent())  # type: ignore[arg-type]
        trainer.optimiser.step(trainer.learning_rate)
        if trainer.compute.device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


class _Silent:
    def say(self, text: str) -> None:
        """Discard messages of the trainer."""
