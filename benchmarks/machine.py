"""The machine under the numbers: processor, versions, load, roofline, and how time is taken on it.

A quiet machine is measured with all its cores and a clock on the wall. On a machine that others use too, one thread
and its processor seconds are far steadier, so that is the fallback, and every table says which of the two it was.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

QUIET = 1.5  # load average of the last minute
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
VERSIONS = ("torch", "numpy", "scipy", "pandas", "snakemake", "tiktoken")


def options(description: str | None) -> argparse.ArgumentParser:
    """What all benchmarks have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute or less; kept apart from the stored results")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores if the machine is quiet, else 1")
    parser.add_argument("--clock", choices=("auto", *CLOCKS), default="auto", help="auto: wall if quiet, else cpu")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds; 0: as the benchmark prefers")
    return parser


def settle(args: argparse.Namespace, rounds: int = 7, quick_rounds: int = 3) -> argparse.Namespace:
    """Decide threads, clock and rounds, once, before the benchmark itself raises the load."""
    import torch

    args.threads, args.clock = threads_and_clock(args)
    args.rounds = args.rounds or (quick_rounds if args.quick else rounds)
    torch.set_num_threads(args.threads)
    machine(args.clock)
    return args


def threads_and_clock(args: argparse.Namespace) -> tuple[int, str]:
    threads = args.threads or ((os.cpu_count() or 1) if is_quiet() else 1)
    clock = "wall" if is_quiet() or threads > 1 else "cpu"
    return threads, clock if args.clock == "auto" else args.clock


def is_quiet() -> bool:
    return load() < QUIET


def wait_for_quiet(seconds: float) -> None:
    """Let the load of earlier work fade, but not for longer than this."""
    end = time.monotonic() + seconds
    while os.getloadavg()[0] >= QUIET and time.monotonic() < end:
        time.sleep(5)


@functools.cache
def load() -> float:
    """As it was when the benchmark began."""
    return round(float(os.environ.get("BENCHMARKS_LOAD") or os.getloadavg()[0]), 2)


def how(args: argparse.Namespace) -> str:
    """For the notes of a table."""
    threads = f"{args.threads} thread{'s' if args.threads > 1 else ''}"
    busy = "" if is_quiet() else f"; the machine was shared (load {load():g}), so trust ratios only"
    return f"{threads}, {args.clock} seconds, {args.rounds} interleaved rounds{busy}"


# Roofline ------------------------------------------------------------------------------------------------------------


def best_seconds(run: Callable[[], Any], clock: Callable[[], float], repeats: int = 12) -> float:
    found = []
    for _ in range(repeats):
        start = clock()
        run()
        found.append(clock() - start)
    return min(found)


@functools.cache
def sgemm_peak(clock: str = "wall", size: int = 1536) -> float:
    """FLOP/s of the best of several float32 matrix products, with torch's current number of threads."""
    import torch

    a, b, out = (torch.randn(size, size) for _ in range(3))
    return 2 * size**3 / best_seconds(lambda: torch.mm(a, b, out=out), CLOCKS[clock])


@functools.cache
def fft_peak(clock: str = "wall", rows: int = 256, n: int = 2048) -> float:
    """FLOP/s of real transforms of 2,048 points (2.5 n log₂n each), many at once, in memory that is reused."""
    import torch

    x = torch.randn(rows, n)
    out = torch.fft.rfft(x)
    return 2.5 * rows * n * math.log2(n) / best_seconds(lambda: torch.fft.rfft(x, out=out), CLOCKS[clock])


# The description -----------------------------------------------------------------------------------------------------


@functools.cache
def machine(clock: str = "wall") -> dict[str, Any]:
    """What a reader needs to judge the numbers; no names of hosts or users. Made once per process."""
    import torch

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
        **{name: version for name in VERSIONS if (version := _version(name))},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
