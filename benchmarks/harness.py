"""Shared by all sections: command line, interleaved timing, peak memory, machine facts, tables.

Rivals are timed in turns, round after round, so that a busy moment affects all of them. A number is the median over the
rounds with its quartiles; a ratio is the median of the rounds' ratios, because noise is shared within a round.

On a quiet machine all cores and wall time are used. On a busy one a single thread and its CPU time are steadier, so
that is the fallback; every table states which of the two was used.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import store

ROOT = Path(__file__).resolve().parents[1]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
VERSIONS = ("torch", "numpy", "scipy", "pandas", "snakemake", "tiktoken")
Section = tuple[list[store.Table], str]  # tables, and what could still be improved


# Command line --------------------------------------------------------------------------------------------------------


def options(description: str | None) -> argparse.ArgumentParser:
    """Options of all sections."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute or less; kept apart from the stored results")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores if the machine is quiet, else 1")
    parser.add_argument("--clock", choices=("auto", *CLOCKS), default="auto", help="auto: wall if quiet, else cpu")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds; 0: the section's default")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="skip rivals with their own packages")
    parser.add_argument("--results", type=Path, help="finished run for `workflow`; default: the newest in results/")
    return parser


def run_section(
    name: str,
    measure: Callable[[argparse.Namespace], Section],
    description: str | None,
    rounds: int = 7,
    quick: int = 3,
) -> None:
    """Measure one section, merge it into the stored results and print it."""
    import torch

    from benchmarks.report import render

    args = options(description).parse_args()
    args.threads, args.clock = threads_and_clock(args)
    args.rounds = args.rounds or (quick if args.quick else rounds)
    torch.set_num_threads(args.threads)
    machine(args.clock)  # before the section itself raises the load
    tables, remaining = measure(args)
    for table in store.merge(name, tables, remaining, store.QUICK if args.quick else store.RESULTS):
        if not table.get("hidden"):
            print(render(table), flush=True)


def threads_and_clock(args: argparse.Namespace) -> tuple[int, str]:
    quiet = load() < store.QUIET
    threads = args.threads or ((os.cpu_count() or 1) if quiet else 1)
    clock = "wall" if quiet or threads > 1 else "cpu"
    return threads, clock if args.clock == "auto" else args.clock


def wait_for_quiet(seconds: float) -> None:
    """Wait until the load of earlier work has faded, at most this long."""
    end = time.monotonic() + seconds
    while os.getloadavg()[0] >= store.QUIET and time.monotonic() < end:
        time.sleep(5)


def conditions(args: argparse.Namespace, threads: int = 0) -> str:
    """Threads, clock and rounds, for the notes of a table."""
    threads = threads or args.threads
    busy = "" if load() < store.QUIET else f"; the machine was shared (load {load():g}): only ratios are reliable"
    plural = "s" if threads > 1 else ""
    return f"{threads} thread{plural}, {args.clock} seconds, {args.rounds} interleaved rounds{busy}"


# Time ----------------------------------------------------------------------------------------------------------------


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


def interleaved(
    runs: Mapping[str, Callable[[], Any]],
    rounds: int = 7,
    warm: int = 1,
    at_least: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each run once per round, in an order that rotates; each sample lasts at least `at_least` seconds.

    A run may return its own seconds (a float): that is how another process takes part.
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


def _sample(run: Callable[[], Any], at_least: float, clock: Callable[[], float]) -> float:
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


# Machine -------------------------------------------------------------------------------------------------------------


@functools.cache
def load() -> float:
    """Load average when the benchmark began."""
    return round(float(os.environ.get("BENCHMARKS_LOAD") or os.getloadavg()[0]), 2)


@functools.cache
def sgemm_peak(clock: str = "wall", size: int = 1536) -> float:
    """FLOP/s of the fastest of several float32 matrix products, with torch's current number of threads."""
    import torch

    a, b, out = (torch.randn(size, size) for _ in range(3))
    return 2 * size**3 / _fastest(lambda: torch.mm(a, b, out=out), CLOCKS[clock])


@functools.cache
def fft_peak(clock: str = "wall", rows: int = 256, n: int = 2048) -> float:
    """FLOP/s of real transforms of 2,048 points (2.5 n log₂n each), many at once, in reused memory."""
    import torch

    x = torch.randn(rows, n)
    out = torch.fft.rfft(x)
    return 2.5 * rows * n * math.log2(n) / _fastest(lambda: torch.fft.rfft(x, out=out), CLOCKS[clock])


def _fastest(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    return min(_sample(run, 0.0, clock) for _ in range(12))


@functools.cache
def machine(clock: str = "wall") -> dict[str, Any]:
    """What a reader needs to judge the numbers; no names of hosts or users."""
    import torch

    installed = {found.metadata["Name"]: found.version for found in metadata.distributions()}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "threads": torch.get_num_threads(),
        "clock": clock,
        "load": load(),
        "sgemm_gflops": round(sgemm_peak(clock) / 1e9, 1),
        "fft_gflops": round(fft_peak(clock) / 1e9, 1),
        "python": platform.python_version(),
        **{name: installed[name] for name in VERSIONS if name in installed},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


# Tables --------------------------------------------------------------------------------------------------------------


def table(title: str, columns: list[str], rows: list[Any], notes: list[str], clock: str = "wall") -> store.Table:
    return {"title": title, "columns": columns, "notes": notes, "machine": machine(clock), "rows": rows}


def rate(timing: Timing, work: float, unit: str = "") -> store.Cell:
    """Work per second."""
    low, high = timing.spread
    return store.cell(work / timing.median, work / high, work / low, better="higher", unit=unit)


def seconds(timing: Timing, scale: float = 1.0, unit: str = " s") -> store.Cell:
    low, high = timing.spread
    return store.cell(scale * timing.median, scale * low, scale * high, better="lower", unit=unit)


def ratio(ours: Timing, rival: Timing, target: str = "") -> store.Cell:
    """How many times faster than the rival, round by round."""
    return _quotient(rival, ours, "higher", target)


def share(ours: Timing, rival: Timing, target: str = "") -> store.Cell:
    """Our time as a share of the rival's, round by round."""
    return _quotient(ours, rival, "lower", target)


def _quotient(a: Timing, b: Timing, better: str, target: str) -> store.Cell:
    found = Timing(tuple(x / y for x, y in zip(a.seconds, b.seconds, strict=True)))
    return store.cell(found.median, *found.spread, better=better, unit="×", target=target)


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1], json.loads(sys.argv[2]))))
