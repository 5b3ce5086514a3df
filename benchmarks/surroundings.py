"""What surrounds the steps of a real training run: waiting for data, checkpoints, logging. Used by benchmarks.step.

A `Trainer` trains for real, on random tokens, with its loader, its progress line and its history; the time spent in
each of them is added up beside the steps.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.step_forms import N
from benchmarks.store import Table, cell
from lmu_scaling.counting import count
from lmu_scaling.models import resolve
from lmu_scaling.runtime import write_json
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.checkpoint import Checkpoints
from lmu_scaling.training.device import place
from lmu_scaling.training.loop import Trainer
from lmu_scaling.training.watch import Watch

CHECKPOINT_SECONDS = 600  # the workflow's default
BATCH, VOCAB = 2, 2048  # the default experiment's: its steps are the shortest, so that shares are the largest


def random_tokens(folder: Path, train: int, vocab: int, shards: int = 1) -> Path:
    """A tokenised corpus of noise, as stage tokens would write it."""
    rng = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    splits: dict[str, dict[str, Any]] = {}
    for split, tokens, pieces in (("train", train, shards), ("validation", 64 * N, 1)):
        for piece in range(pieces):
            name = f"{piece:05d}.{split}.bin"
            rng.integers(vocab, size=tokens // pieces, dtype=np.uint16).tofile(folder / name)
            found.append({"file": name, "split": split, "tokens": tokens // pieces})
        splits[split] = {"bytes": 4 * tokens, "documents": 1}
    rules = {"vocab": vocab, "eot": vocab - 1, "digest": "noise", "dtype": "uint16"}
    write_json(folder / "manifest.json", rules | {"splits": splits, "shards": found})
    return folder


def spec(d: int, n: int, steps: int) -> dict[str, Any]:
    rules = {"batch": BATCH, "steps": steps, "seed": 1, "learning_rate": 1e-3, "betas": [0.9, 0.999], "eps": 1e-7}
    rules |= {"weight_decay": 0.0, "clip": 1.0, "warmup": 0.04, "plateau": None}
    rules |= {"validate_every": steps, "validation_sequences": 1}
    return {"model": resolve("lmu", d, n, VOCAB).asdict(), "training": rules}


def added_up(function: Callable[..., Any], total: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            total[0] += time.perf_counter() - start

    return timed


def run(folder: Path, d: int, n: int, steps: int, threads: int) -> dict[str, float]:
    """Seconds of one short run, and of its parts."""
    tokens = random_tokens(folder, max(1_000_000, 2 * steps * BATCH * n), VOCAB)
    settings = spec(d, n, steps)
    where = place("cpu", "float32", threads)
    trainer = Trainer(settings, TokenStore(tokens, "train"), TokenStore(tokens, "validation"), where)
    flops = count(trainer.model.spec).flops_training
    watch = Watch(folder / "live", "benchmark", steps * BATCH * n, flops, peak=1e12, main=True)
    checkpoints = Checkpoints(folder / "checkpoints", "benchmark")
    logged = [0.0]
    trainer.record = added_up(trainer.record, logged)  # type: ignore[method-assign]
    watch.advance = added_up(watch.advance, logged)  # type: ignore[method-assign]
    trainer.run(watch, checkpoints, checkpoint_seconds=float("inf"))
    watch.close()
    saves = []
    for _ in range(5):
        start = time.perf_counter()
        trainer.save(checkpoints)
        saves.append(time.perf_counter() - start)
    return {"step": trainer.seconds, "wait": trainer.waited, "log": logged[0], "save": float(np.median(saves))}


def table(args: argparse.Namespace) -> Table:
    rows = []
    for d, n, steps in ((16, 256, 1600), (48, 1024, 80)):  # a quick run too: fewer steps are logged more often
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder), d, n, steps, args.threads)
        per_step = cell(1e3 * found["step"] / steps, better="lower", unit=" ms")
        for what, share, bar in (
            ("waiting for data, of the run's time", found["wait"] / found["step"], "data_wait"),
            ("a checkpoint (fsynced), of the 600 s until the next", found["save"] / CHECKPOINT_SECONDS, "checkpoint"),
            ("history, progress line and live file, of the run's time", found["log"] / found["step"], "logging"),
        ):
            rows.append([f"d = {d}, n = {n}", per_step, what, cell(share, better="lower", unit="%", bar=bar)])
    notes = [
        f"A real run of the LMU, batch {BATCH}, vocabulary {VOCAB:,}, on random tokens, against its own wall time; "
        "the first is the default experiment's smallest model, with as many steps: that decides how often it logs.",
    ]
    return harness.table("What surrounds the steps", ["model", "a step", "what", "share"], rows, notes, args.clock)
