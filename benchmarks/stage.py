"""The default experiment's training stage against the plain eager way, step by step. Used by benchmarks.step.

A step of every variant and size is timed in both forms, and weighted by the number of steps that the experiment takes
of it, learning-rate sweeps included. One thread, as each of the experiment's jobs has; both sides keep freed memory, as
`train` does.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import torch

from benchmarks import harness
from benchmarks.machine import CLOCKS, how
from benchmarks.step_forms import OURS, PLAIN, stepper
from benchmarks.store import Table, aside, cell
from lmu_scaling import experiment
from lmu_scaling.config import load

AT_LEAST = 0.2  # seconds of a sample: these steps take milliseconds


def weights(config: Any) -> Counter[tuple[str, str]]:
    """Steps of each variant and size."""
    found: Counter[tuple[str, str]] = Counter()
    for run in [*experiment.runs(config), *experiment.sweeps(config)]:
        found[run.variant, run.size] += experiment.spec_of(config, run)["training"]["steps"]
    return found


def measure(config: Any, variant: str, size: str, args: argparse.Namespace) -> dict[str, harness.Timing]:
    spec = experiment.model_spec(config, variant, size)
    shape = {"n": spec.context, "batch": config.training.batch, "clip": config.training.tuning.clip}
    runs = {kind: stepper(variant, spec.d, spec.vocab, kind, **shape) for kind in (PLAIN, OURS)}
    return harness.interleaved(runs, rounds=args.rounds, warm=5, at_least=AT_LEAST, clock=CLOCKS[args.clock])


def table(args: argparse.Namespace) -> Table:
    config = load(harness.ROOT / "config.yaml")
    torch.set_num_threads(1)
    rows: list[list[Any]] = []
    total = {kind: [0.0] * args.rounds for kind in (PLAIN, OURS)}
    for (variant, size), steps in weights(config).items():
        timings = measure(config, variant, size, args)
        for kind, timing in timings.items():
            total[kind] = [sum_ + steps * seconds for sum_, seconds in zip(total[kind], timing.seconds, strict=True)]
        times = [aside(harness.seconds(timings[PLAIN], 1e3, " ms")), harness.seconds(timings[OURS], 1e3, " ms")]
        rows.append([variant, size, f"{steps:,}", *times, _share(timings[OURS], timings[PLAIN])])
    whole = {kind: harness.Timing(tuple(seconds)) for kind, seconds in total.items()}
    times = [aside(harness.seconds(whole[PLAIN])), harness.seconds(whole[OURS])]
    rows.append(["all", "all", f"{weights(config).total():,}", *times, _share(whole[OURS], whole[PLAIN], "stage")])
    columns = ["variant", "size", "steps", "plain eager", "ours", "ours / plain eager, time"]
    torch.set_num_threads(args.threads)
    shape = f"batch {config.training.batch}, n = {config.models.context}, vocabulary {config.tokens.vocab:,}"
    one = argparse.Namespace(**{**vars(args), "threads": 1})
    notes = [f"A step, and in the last row all steps of the experiment; {shape}; {how(one)}; freed memory is kept."]
    return harness.table("The default experiment's training stage", columns, rows, notes, args.clock)


def _share(ours: harness.Timing, rival: harness.Timing, bar: str = "") -> dict[str, Any]:
    """Our time as a share of the rival's, round by round."""
    shares = tuple(a / b for a, b in zip(ours.seconds, rival.seconds, strict=True))
    return cell(harness.Timing(shares).median, *harness.quartiles(shares), better="lower", unit="×", bar=bar)
