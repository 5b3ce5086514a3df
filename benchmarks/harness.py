"""Shared by all benchmarks: interleaved timing, ratios, peak memory in a child, tables.

Rivals are timed in turns, round after round, so that a busy moment hits all of them. A number is the median over the
rounds with its quartiles; a ratio is the median of the rounds' ratios, because what shares a round shares its noise.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import store
from benchmarks.machine import CLOCKS, machine
from lmu_scaling.runtime import keep_freed_memory

__all__ = ["CLOCKS", "interleaved", "keep_freed_memory", "machine", "peak_memory", "publish", "table"]
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Timing:
    """Seconds per call over all rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """Lower and upper quartile."""
        return quartiles(self.seconds)


def quartiles(values: tuple[float, ...]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def rate(timing: Timing, work: float, unit: str = "") -> store.Cell:
    """Work per second."""
    low, high = timing.spread
    return store.cell(work / timing.median, work / high, work / low, better="higher", unit=unit)


def seconds(timing: Timing, scale: float = 1.0, unit: str = " s") -> store.Cell:
    low, high = timing.spread
    return store.cell(scale * timing.median, scale * low, scale * high, better="lower", unit=unit)


def ratio(ours: Timing, rival: Timing, bar: str = "") -> store.Cell:
    """How many times faster than the rival, round by round."""
    found = tuple(b / a for a, b in zip(ours.seconds, rival.seconds, strict=True))
    return store.cell(statistics.median(found), *quartiles(found), better="higher", unit="×", bar=bar)


def interleaved(
    runs: Mapping[str, Callable[[], Any]],
    rounds: int = 7,
    warm: int = 1,
    at_least: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each run once per round, in an order that rotates; each sample lasts `at_least` that many seconds.

    A run may return its own seconds (a float), which is how another process takes part.
    """
    for run in runs.values():
        for _ in range(warm):
            run()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for index in range(rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(_sample(runs[name], at_least, clock))
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def _sample(run: Callable[[], Any], at_least: float, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    reported, calls = 0.0, 0
    while True:
        own = run()
        calls += 1
        passed = clock() - start
        reported += own if isinstance(own, float) else 0.0
        if max(passed, reported) >= at_least:
            return (reported or passed) / calls


# Memory --------------------------------------------------------------------------------------------------------------


def peak_memory(function: str, **arguments: Any) -> dict[str, float]:
    """Run `module:function` in a fresh process; the growth of its resident memory in bytes, at the peak and at the end.

    The function prepares everything and returns a callable; only the callable is measured, after one warm-up call.
    """
    command = [sys.executable, "-m", "benchmarks.harness", function, json.dumps(arguments)]
    # Freed blocks go back to the system at once, so that the second call shows what the first one needed.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (highest so far), in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _measure_here(function: str, arguments: dict[str, Any]) -> dict[str, float]:
    module, _, name = function.partition(":")
    run = getattr(importlib.import_module(module), name)(**arguments)
    run()
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = resident("VmRSS")
    kept = run()
    end, peak = resident("VmRSS"), resident("VmHWM")
    del kept
    return {"peak": peak - before, "held": end - before}


# Tables --------------------------------------------------------------------------------------------------------------


def table(title: str, columns: list[str], rows: list[Any], notes: list[str], clock: str = "wall") -> store.Table:
    return {"title": title, "columns": columns, "rows": rows, "notes": notes, "machine": machine(clock)}


def publish(name: str, tables: list[store.Table], left: str = "", quick: bool = False) -> Path:
    """Merge a section into the stored results and print it; `left` says what is left on the table."""
    from benchmarks.report import render

    path = store.QUICK if quick else store.RESULTS
    for entry in store.merge(name, tables, left, path):
        if not entry.get("behind"):
            print(render(entry), flush=True)
    return path


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1], json.loads(sys.argv[2]))))
