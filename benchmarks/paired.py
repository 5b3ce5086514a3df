"""Does bfloat16 change the loss? Pairs of short runs on a CPU that differ in nothing but the precision.

    python -m benchmarks.paired --results results/sotu    # a finished run, for its tokens; five minutes

Every variant at three sizes; d = 48 is the narrowest whose body is rounded as well. A pair has one seed, hence the same
initial weights and batches. Both models are evaluated in float32 on the same validation windows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import scipy.stats
import torch

from benchmarks import harness
from benchmarks.store import cell
from lmu_scaling.models import resolve, variants
from lmu_scaling.runtime import read_json
from lmu_scaling.spec import DataSpec, RunSpec, TrainingSpec
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.checkpoint import Checkpoints
from lmu_scaling.training.compute import ComputeContext
from lmu_scaling.training.loop import Trainer
from lmu_scaling.training.monitor import Monitor

WIDTHS, SEEDS, N, BATCH, STEPS = (16, 32, 48), (1, 2), 256, 4, 150
CONFIDENCE = 0.95
TITLE = "Validation losses in float32 and bfloat16"
SINGLE = ComputeContext(torch.device("cpu"), "float32")


def validation_loss(tokens: Path, variant: str, d: int, seed: int, precision: str, steps: int) -> float:
    vocab = int(read_json(tokens / "index.json")["vocab"])
    training = TrainingSpec(
        batch=BATCH,
        steps=steps,
        seed=seed,
        learning_rate=3e-3,
        betas=(0.9, 0.999),
        eps=1e-7,
        weight_decay=0.0,
        clip=1.0,
        warmup=0.1,
        plateau=None,
        validate_every=steps,
        validation_sequences=64,
    )
    spec = RunSpec(resolve(variant, d, N, vocab), DataSpec("paired", "paired"), training)
    compute = ComputeContext(torch.device("cpu"), precision)
    trainer = Trainer(spec, TokenStore(tokens, "train"), TokenStore(tokens, "validation"), compute)
    with tempfile.TemporaryDirectory() as scratch:
        monitor = Monitor(Path(scratch), "paired", steps * BATCH * N, 1.0, peak=1e12, main=False)
        trainer.run(monitor, Checkpoints(Path(scratch) / "checkpoints", "paired"), checkpoint_seconds=float("inf"))
        monitor.close()
    trainer.compute = SINGLE
    return trainer.validate()


def interval(differences: list[float]) -> tuple[float, float, float]:
    """Mean and its interval by Student's t."""
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * error
    return mean, mean - half, mean + half


def measure(args: argparse.Namespace) -> harness.Section:
    tokens = (args.results or harness.ROOT / "results" / "sotu") / "tokens"
    if not (tokens / "index.json").is_file():
        note = "No tokens: `make run`, then `python -m benchmarks.paired`."
        return [harness.table(TITLE, ["variant"], [], [note], args.clock)], ""
    steps = 20 if args.quick else STEPS
    rows: list[list[Any]] = []
    every: list[float] = []
    for variant in variants():
        row: list[Any] = [variant]
        own: list[float] = []
        for d in WIDTHS:
            pairs = [
                [validation_loss(tokens, variant, d, seed, kind, steps) for kind in ("float32", "bfloat16")]
                for seed in SEEDS
            ]
            found = [half - single for single, half in pairs]
            print(variant, d, pairs, flush=True)
            row.append(", ".join(f"{single:.3f} ({half - single:+.4f})" for single, half in pairs))
            own += found
        every += own
        rows.append([*row, shown(own), None])
    size = cell(abs(statistics.fmean(every)), better="lower", unit=" nats", target="paired")
    rows.append(["all", *("" for _ in WIDTHS), shown(every), size])
    columns = ["variant", *(f"d = {d}" for d in WIDTHS), f"mean, {CONFIDENCE:.0%} interval [nats]", "its size"]
    notes = [
        "Validation loss in float32, and in brackets what bfloat16 adds, one number per seed. A pair shares seed, "
        "weights and batches; both are evaluated in float32.",
        f"{steps} steps of {BATCH} × {N} tokens; the interval is Student's t over pairs.",
    ]
    return [harness.table(TITLE, columns, rows, notes, args.clock)], ""


def shown(differences: list[float]) -> str:
    mean, low, high = interval(differences)
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"


if __name__ == "__main__":
    harness.run_section("paired", measure, __doc__)
