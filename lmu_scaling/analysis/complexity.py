"""Measured time and peak memory against the sequence length, with fitted slopes (Table 1).

Four layers of the same width: attention with its n x n matrix, attention by torch's fused kernel (which never holds the
matrix), the parallel LMU, and the recurrent LMU, which reads token by token and keeps only its state. One sequence; the
forward pass (inference), and forward and backward (training), in which the recurrent LMU keeps what every step has
computed, because back-propagation needs it. Training is measured over the longest three octaves only.

On the CPU, time is processor time, and every point runs in a forked child process whose peak resident memory is read
from the kernel; differences below `RESOLUTION` are noise and count as equal.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import write_csv
from lmu_scaling.devices import choose
from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Output, job
from lmu_scaling.models import resolve
from lmu_scaling.models.layers.attention import GlobalAttention
from lmu_scaling.models.layers.lmu import LMU
from lmu_scaling.runtime import keep_freed_memory, progress
from lmu_scaling.sections import Complexity

RESOLUTION = 512 * 1024
SECONDS_PER_POINT = 2.0
LONGEST = 8  # slopes are over the longest three octaves; shorter sequences measure overhead
QUANTITIES = {
    "compute": "seconds",
    "memory": "bytes",
    "training_compute": "training_seconds",
    "training_memory": "training_bytes",
}
LAYERS = ("attention", "attention_flash", "lmu_parallel", "lmu_recurrent")
FUSED = {"attention_flash": {"compute": "n²", "memory": "n"}}  # not in the paper: the known growth of fused kernels
GROWTH: dict[str, Callable[[Any], Any]] = {
    "n²": lambda n: n**2.0,
    "n ln n": lambda n: n * np.log(n),
    "n": lambda n: n * 1.0,
    "1": lambda n: n**0.0,
}


@job
def complexity(
    settings: Complexity, out: Output, slopes: Output, device: str = "auto", threads: int = 1
) -> dict[str, Any]:
    """Measure time and memory against sequence length (Table 1), and fit log–log slopes over the longest three octaves.

    Args:
        settings: lengths, width, order and repeats, as JSON
        out: complexity.csv
        slopes: complexity_slopes.csv
        device: auto, cpu or cuda
        threads: CPU threads
    """
    torch.set_num_threads(threads)
    where = choose(device)
    points = [(layer, n) for layer in LAYERS for n in sorted(settings.lengths)]
    rows = [_point(layer, n, settings, where) for layer, n in progress(points, "measure", len(points), "point")]
    table = pd.DataFrame(rows)
    write_csv(out, table)
    write_csv(slopes, pd.DataFrame(fit_slopes(table)))
    return {"device": str(where), "points": len(rows)}


# ---------------------------------------------------------------------------------------------------- the layers
def make(layer: str, n: int, d: int, q: int, device: torch.device, training: bool = False) -> Callable[[], Any]:
    """A function that runs one forward pass over n tokens; `training`: and back-propagates from all outputs to x."""
    generator = torch.Generator().manual_seed(0)
    run: Callable[[Tensor], Tensor]
    if layer.startswith("attention"):
        attention = GlobalAttention(resolve("transformer", d, n, 257, heads=1))
        attention.initialise(generator)
        attention.to(device)
        run = functools.partial(_materialised, attention) if layer == "attention" else attention
    else:
        lmu = LMU(resolve("lmu", d, n, 257, q=q, ffn=1))
        lmu.initialise(generator)
        lmu.to(device)
        if layer == "lmu_recurrent":
            if not training:
                return lambda: _stream(lmu, n, d, device)
            run = functools.partial(_unrolled, lmu)
        else:
            lmu.memory.filters(n, torch.float32, device)  # computed once and kept, whatever is read
            run = lmu
    x_1nd = torch.randn(1, n, d, generator=generator).to(device).requires_grad_(training)
    return (lambda: run(x_1nd).sum().backward()) if training else lambda: run(x_1nd)


def _materialised(layer: GlobalAttention, x_1nd: Tensor) -> Tensor:
    """softmax(QKᵀ/√d)V with the n x n matrix in memory, as in Vaswani et al."""
    n, d = x_1nd.shape[1:]
    Q_nd, K_nd, V_nd = layer.qkv(x_1nd)[0].split(d, dim=1)
    scores_nn = Q_nd @ K_nd.T / d**0.5
    later = torch.ones(n, n, dtype=torch.bool, device=scores_nn.device).triu(1)
    return layer.out(torch.softmax(scores_nn.masked_fill(later, float("-inf")), dim=1) @ V_nd)


def _stream(lmu: LMU, n: int, d: int, device: torch.device) -> Tensor:
    """Process token by token; neither inputs nor outputs are kept."""
    state = lmu.initial_state(1, device)
    x_1d = y_1d = torch.ones(1, d, device=device)
    for _ in range(n):
        y_1d, state = lmu.step(x_1d, state)
    return y_1d


def _unrolled(lmu: LMU, x_1nd: Tensor) -> Tensor:
    """Process token by token, with every output: back-propagation keeps what each step has computed."""
    state = lmu.initial_state(1, x_1nd.device)
    outputs = []
    for x_1d in x_1nd.unbind(1):
        y_1d, state = lmu.step(x_1d, state)
        outputs.append(y_1d)
    return torch.stack(outputs, dim=1)


# ------------------------------------------------------------------------------------------------ one measurement
def _point(layer: str, n: int, settings: Complexity, device: torch.device) -> dict[str, Any]:
    def job(training: bool) -> dict[str, Any]:
        def once() -> dict[str, Any]:
            repeats = 1 if training else settings.repeats
            return measure(layer, n, settings.d, settings.q, repeats, device, training)

        return once() if device.type == "cuda" or not hasattr(os, "fork") else in_child(once)

    found = job(training=False)
    both = job(training=True) if n >= max(settings.lengths) / LONGEST else {"seconds": np.nan, "bytes": np.nan}
    found |= {"training_seconds": both["seconds"], "training_bytes": both["bytes"]}
    return {"layer": layer, "n": n} | found | {"device": device.type, "d": settings.d, "q": settings.q}


def measure(
    layer: str, n: int, d: int, q: int, repeats: int, device: torch.device, training: bool = False
) -> dict[str, Any]:
    """Fastest of several passes [s], and peak memory above what was in use before the first [bytes]."""
    with torch.inference_mode(not training):
        make(layer, 16, d, min(q, 16), device, training)()  # warm-up: libraries load and allocate their own memory
        run = make(layer, n, d, q, device, training)
        return _measured(run, repeats, device)


def _measured(run: Callable[[], Any], repeats: int, device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        memory = torch.cuda.max_memory_allocated() - before
    else:
        memory = peak_above(run)
        keep_freed_memory()
        run()
    seconds = timings(run, repeats, device)
    return {"seconds": min(seconds), "bytes": int(memory), "repeats": len(seconds)}


def timings(run: Callable[[], Any], repeats: int, device: torch.device) -> list[float]:
    """Times of at least `repeats` passes and 0.2 s in all; no new pass after `SECONDS_PER_POINT`."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time  # without the time of other processes
    found: list[float] = []
    while len(found) < repeats or (sum(found) < 0.2 and len(found) < 100):
        start = clock()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(clock() - start)
        if sum(found) > SECONDS_PER_POINT:
            break
    return found


def peak_above(run: Callable[[], Any]) -> int:
    """Peak resident memory during `run`, above what was resident before."""
    _return_freed_memory()
    before = _status("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the recorded peak
    except OSError:
        pass
    kept = run()
    peak = _status("VmHWM")
    del kept
    return max(0, peak - before)


def _return_freed_memory() -> None:
    """Make the allocator return memory that the warm-up freed, which would otherwise hide later allocations."""
    library = ctypes.CDLL(None)
    if sys.platform.startswith("linux") and hasattr(library, "malloc_trim"):
        library.mallopt(-4, 65536)  # M_MMAP_MAX and, below, M_TRIM_THRESHOLD: glibc's own values
        library.mallopt(-1, 128 * 1024)
        library.malloc_trim(0)


def _status(key: str) -> int:
    """A line of /proc/self/status [bytes]; elsewhere the peak since the start of the process."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def in_child(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run in a forked process, which has its own memory and need not import torch again."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(job(), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0 or not text:
        raise ResultsError(
            f"a measurement ended with status {os.waitstatus_to_exitcode(status)}",
            "analysis.complexity",
            "if it was killed, there is too little memory: remove the largest of analysis.complexity.lengths",
        )
    return json.loads(text)


# --------------------------------------------------------------------------------------------------------- slopes
def fit_slopes(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Log–log slopes by least squares over the longest three octaves (shorter sequences measure overhead)."""
    rows, growth = [], load_paper()["table1"] | FUSED
    for layer, group in table.groupby("layer", sort=False):
        group = group.sort_values("n")
        long = group[group["n"] >= group["n"].max() / LONGEST]
        group = long if len(long) >= 3 else group
        for quantity, column in QUANTITIES.items():
            own = group.dropna(subset=[column])
            n, y = own["n"].to_numpy(float), own[column].to_numpy(float)
            y = np.maximum(y, RESOLUTION) if quantity.endswith("memory") else y
            stated = growth[layer][quantity.removeprefix("training_")]  # Table 1: "during training and inference"
            span = {"n_min": int(n.min()), "n_max": int(n.max())}
            rows.append({"layer": layer, "quantity": quantity} | slope(n, y) | _expected(n, stated) | span)
    return rows


def slope(n: np.ndarray, y: np.ndarray, confidence: float = 0.95) -> dict[str, Any]:
    if np.ptp(y) == 0:
        return {"slope": 0.0, "low": 0.0, "high": 0.0, "points": len(n)}
    fit = stats.linregress(np.log(n), np.log(y))
    half = stats.t.ppf((1 + confidence) / 2, len(n) - 2) * fit.stderr if len(n) > 2 else np.nan
    return {"slope": fit.slope, "low": fit.slope - half, "high": fit.slope + half, "points": len(n)}


def _expected(n: np.ndarray, stated: str) -> dict[str, Any]:
    """The slope that the paper's term itself has over these lengths (1.11 for n ln n near 8192)."""
    return {"stated": stated, "expected": slope(n, GROWTH[stated](n))["slope"]}
