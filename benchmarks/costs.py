"""Where the largest costs of `make run` go: a profile, taken anew each time. Used by benchmarks.whole.

A training job is taken apart into what surrounds its steps (job time less the run's own clock) and, by torch's
profiler, the operations of a step of each variant at its middle size; an evaluation into imports and the rest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import harness
from benchmarks.machine import CLOCKS
from benchmarks.step_forms import OURS, stepper
from benchmarks.store import Table, cell
from lmu_scaling import experiment
from lmu_scaling.config import load

PARTS = {  # the first name in an operation's decides
    "loss": ("LinearCrossEntropy",),
    "LMU": ("NativeLMU",),
    "attention": ("scaled_dot_product", "flash"),
    "LSTM": ("rnn", "lstm"),
    "products": ("mm", "linear"),
    "norms and gelu": ("layer_norm", "gelu"),
    "Adam, clipping": ("adam", "norm", "foreach"),
}
REST = "the rest"
IMPORTS = {
    "start of Python": "pass",
    "import torch": "import torch",
    "imports of `train`": "import lmu_scaling.training.train",
    "imports of `evaluate`": "import lmu_scaling.evaluation.evaluate",
}
STEPS = 20


def part_of(operation: str) -> str:
    return next((part for part, names in PARTS.items() if any(name in operation for name in names)), REST)


def by_part(step: Any) -> dict[str, float]:
    """Share of each part in the step's time; the profiler's own cost weighs on parts with many small operations."""
    for _ in range(5):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(STEPS):
            step()
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        spent[part_of(event.key)] += event.self_cpu_time_total
    return {part: spent[part] / spent.total() for part in [*PARTS, REST]}


def steps_table(args: argparse.Namespace) -> Table:
    """The operations of a step, variant by variant."""
    config = load(harness.ROOT / "config.yaml")
    torch.set_num_threads(1)
    sizes = [size.name for size in config.models.sizes]
    rows: list[list[Any]] = []
    for variant in config.models.variants:
        spec = experiment.model_spec(config, variant, sizes[len(sizes) // 2])
        shape = {"n": spec.context, "batch": config.training.batch, "clip": config.training.tuning.clip}
        shares = by_part(stepper(variant, spec.d, spec.vocab, OURS, **shape))
        rows.append([variant, *(cell(share, better="–", unit="%") if share else None for share in shares.values())])
    torch.set_num_threads(args.threads)
    note = f"Of the processor time of {STEPS} steps at size {sizes[len(sizes) // 2]}, one thread, by torch's profiler."
    return harness.table(
        "A step of the default experiment, by operation", ["variant", *PARTS, REST], rows, [note], args.clock
    )


def imports(rounds: int) -> dict[str, harness.Timing]:
    def run(code: str) -> Any:
        return lambda: subprocess.run([sys.executable, "-c", code], cwd=harness.ROOT, check=True) and None

    runs = {name: run(code) for name, code in IMPORTS.items()}
    return harness.interleaved(runs, rounds=rounds, clock=CLOCKS["wall"])


def jobs_table(results: Path, found: pd.DataFrame, args: argparse.Namespace) -> Table:
    """What a job of the two costliest rules spends its time on."""
    took = imports(args.rounds)
    own = [read["machine"]["seconds"] for read in map(_json, sorted(results.glob("training/*/result.json")))]
    train, evaluate = (found[found["rule"] == rule]["seconds"] for rule in ("train", "evaluate"))
    around = (train.sum() - sum(own)) / len(train)
    start = {rule: took[f"imports of `{rule}`"].median for rule in ("train", "evaluate")}
    rows: list[list[Any]] = [
        ["train", "steps and validations", _seconds(sum(own) / len(train)), _share(sum(own), train.sum())],
        ["train", "before and after them", _seconds(around), _share(around * len(train), train.sum())],
        *(["train", f"… of which: {name}", harness.seconds(took[name]), None] for name in list(IMPORTS)[:3]),
        ["evaluate", "imports", _seconds(start["evaluate"]), _share(start["evaluate"], evaluate.mean())],
        [
            "evaluate",
            "two splits: forward passes, sums, files",
            _seconds(evaluate.mean() - start["evaluate"]),
            _share(evaluate.mean() - start["evaluate"], evaluate.mean()),
        ],
    ]
    note = (
        "Means over the jobs of the finished run, in which two jobs share the machine; the imports were timed alone, "
        "with warm files, and each contains the ones above it."
    )
    return harness.table(
        "What a job's time goes to", ["rule", "what", "time per job", "share"], rows, [note], args.clock
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _seconds(value: float) -> dict[str, Any]:
    return cell(value, better="lower", unit=" s")


def _share(part: float, whole: float) -> dict[str, Any]:
    return cell(part / whole, better="–", unit="%")
