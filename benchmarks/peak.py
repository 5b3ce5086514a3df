"""Peaks of this processor: what its instructions do (peak.c), whatever library a product comes from."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import threading
import time
from typing import Any

from benchmarks import harness, store
from lmu_scaling.models import native

KINDS = ("float32, eight lanes", "float32, AVX-512", "bfloat16, AVX512-BF16")
ROUNDS = 4_000_000  # of peak.c: 0.2 s


@functools.cache
def peaks(threads: int) -> dict[str, float]:
    """FLOP/s of the instructions, all threads together; empty where the processor lacks them."""
    if native.vectors() < 2:
        return {}
    path = store.CACHE / "peak.so"
    path.parent.mkdir(exist_ok=True)
    source = store.HERE / "peak.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    library = ctypes.CDLL(str(path))
    library.peak.restype, library.peak.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_long]
    return {kind: threads * max(_peak(library, index) for _ in range(5)) for index, kind in enumerate(KINDS)}


def _peak(library: Any, kind: int) -> float:
    """Of one thread, by its own CPU time: a busy machine does not lower it."""
    found: list[float] = []

    def run() -> None:
        start = time.thread_time()
        work = library.peak(kind, ROUNDS)
        found.append(work / (time.thread_time() - start))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def float32_peak(threads: int, clock: str) -> float:
    """Of the instructions, or of torch's products where peak.c does not run."""
    return peaks(threads).get(KINDS[1]) or harness.sgemm_peak(clock)
