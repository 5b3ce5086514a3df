"""Builds and calls `kernels/*.c`: the LMU's convolution and implicit self-attention, and the head's loss, on a CPU.

The system's C compiler needs about a second, once per machine: the library is cached under a hash of source, compiler
and processor. Without a compiler `kernels()` is None, and the caller uses the torch form.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

C_SOURCES = "kernels"  # read by the fingerprint: an edit of the kernels retrains what uses them
FOLDER = Path(__file__).with_name(C_SOURCES)
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-pthread")
MOST_THREADS, LANES = 64, 8  # as in vector.h
POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
SIGNATURES: dict[str, list[Any]] = {
    "lmu_spectrum": [POINTER] * 3 + [LONG] * 2 + [INT],
    "lmu_convolve": [POINTER] * 4 + [LONG] * 3 + [INT] * 3,
    "lmu_correlate": [POINTER] * 6 + [LONG] * 3 + [INT] * 3,
    "lmu_filter_gradient": [POINTER, INT, POINTER, POINTER, LONG, LONG, INT],
    "lmu_attend": [POINTER] * 3 + [FLOAT, POINTER] + [LONG] * 2 + [INT] * 3,
    "lmu_attend_back": [POINTER] * 3 + [FLOAT] + [POINTER] * 3 + [LONG] * 2 + [INT] * 3,
    "lmu_head": [POINTER] * 6 + [LONG] * 2 + [INT] * 2,
}


# Building -----------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "lmu_scaling"


def _processor() -> str:
    """-march=native holds for one kind of processor only; homes are shared between kinds on clusters."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def compile_library(compiler: str, folder: Path) -> Path | None:
    """The shared library, built unless it is there; None when the compiler or the disk refuses."""
    sources = sorted(FOLDER.glob("*.c"))
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        texts = [path.read_text("utf-8") for path in sorted(FOLDER.iterdir()) if path.suffix in (".c", ".h")]
        identity = "\0".join((*texts, *FLAGS, version, platform.machine(), _processor()))
        target = folder / f"kernels-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch) / "kernels.so"
                command = [compiler, *FLAGS, *map(str, sources), "-o", str(built), "-lm"]
                subprocess.run(command, capture_output=True, check=True)
                os.replace(built, target)
        return target
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The compiled functions, or None. `CC` chooses the compiler; `LMU_SCALING_NATIVE=0` switches them off."""
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get("LMU_SCALING_NATIVE") == "0" or compiler is None:
        return None
    path = compile_library(compiler, cache_folder())
    if path is not None:
        return _load(path)
    with tempfile.TemporaryDirectory() as scratch:  # the cache cannot be written: build for this process only
        path = compile_library(compiler, Path(scratch))
        return None if path is None else _load(path)


def _load(path: Path) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    for name, types in SIGNATURES.items():
        getattr(library, name).argtypes = types
    library.lmu_twiddles.argtypes, library.lmu_twiddles.restype = [POINTER, LONG], None
    return library


# Calling ------------------------------------------------------------------------------------------------------------


def _at(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    assert tensor.dtype == torch.float32
    return tensor.data_ptr()


@functools.lru_cache(maxsize=32)
def _twiddles(size: int) -> Tensor:
    table = torch.empty(2 * size)
    _library().lmu_twiddles(_at(table), size)
    return table


def _library() -> ctypes.CDLL:
    library = kernels()
    assert library is not None, "callers ask kernels() first"
    return library


def _call(name: str, *arguments: float) -> None:
    if getattr(_library(), name)(*arguments):
        raise MemoryError(f"no memory for the scratch space of {name}")


def threads() -> int:
    return min(torch.get_num_threads(), MOST_THREADS)


class Convolution:
    """All channels with all filters (eq. 7); made once per forward or backward pass."""

    def __init__(self, filters_kn: Tensor, d: int) -> None:
        self.k, self.n = filters_kn.shape
        self.d = d
        self.tile = _library().lmu_tile()
        self.tiles = -(-self.n // self.tile)
        self.size = 2 * self.tile
        while self.size < 2 * self.n:
            self.size *= 2
        self.table = _twiddles(self.size)
        self.spectra_kf2 = filters_kn.new_empty(self.k, self.size, 2)
        _call("lmu_spectrum", _at(filters_kn), _at(self.spectra_kf2), _at(self.table), self.n, self.size, self.k)
        self.sums: Tensor | None = None

    def empty(self, batch: int) -> Tensor:
        """For y [b, t, d, k, c], time innermost, in tiles."""
        return self.spectra_kf2.new_empty(batch, self.tiles, self.d, self.k, self.tile)

    def forward(self, x_bnd: Tensor, y_btdkc: Tensor) -> None:
        tensors = (_at(x_bnd), _at(self.spectra_kf2), _at(self.table), _at(y_btdkc))
        _call("lmu_convolve", *tensors, len(x_bnd), self.n, self.size, self.d, self.k, threads())

    def backward(self, x_bnd: Tensor, dy_btdkc: Tensor, dx_bnd: Tensor) -> None:
        if self.sums is None:
            self.sums = self.spectra_kf2.new_zeros(threads(), self.k, self.size, 2)
        tensors = (x_bnd, self.spectra_kf2, self.table, dy_btdkc, dx_bnd, self.sums)
        sizes = (len(x_bnd), self.n, self.size, self.d, self.k, len(self.sums))
        _call("lmu_correlate", *map(_at, tensors), *sizes)

    def filter_gradient(self) -> Tensor:
        assert self.sums is not None
        dfilters_kn = self.sums.new_empty(self.k, self.n)
        sizes = (self.n, self.size, self.k)
        _call("lmu_filter_gradient", _at(self.sums), len(self.sums), _at(dfilters_kn), _at(self.table), *sizes)
        return dfilters_kn


def attend(y_btdkc: Tensor, bias_k: Tensor, p_i: Tensor, scale: float, m_bnd: Tensor) -> None:
    """Eqs. 8–10 for all tokens."""
    b, n, d = m_bnd.shape
    tensors = (_at(y_btdkc), _at(bias_k), _at(p_i))
    _call("lmu_attend", *tensors, scale, _at(m_bnd), b, n, d, len(p_i), threads())


def attend_back(
    y_btdkc: Tensor, bias_k: Tensor, p_i: Tensor, scale: float, dm_bnd: Tensor, dy_btdkc: Tensor
) -> tuple[Tensor, Tensor]:
    """Writes dy, which may be y itself; returns dbias and dp."""
    b, n, d = dm_bnd.shape
    sums = y_btdkc.new_zeros(threads(), 4 * len(p_i))
    before = (_at(y_btdkc), _at(bias_k), _at(p_i))
    after = (_at(dm_bnd), _at(dy_btdkc), _at(sums))
    _call("lmu_attend_back", *before, scale, *after, b, n, d, len(p_i), len(sums))
    total = sums.sum(0)
    return total[: len(bias_k)], total[len(bias_k) :]


def head(h_td: Tensor, weight_vd: Tensor, gradients: bool) -> tuple[Tensor, Tensor, Tensor]:
    """ln Σ exp(h · weightᵀ) of each token; with `gradients`, those of its mean to h and to the weights (else unset)."""
    (total, d), classes = h_td.shape, len(weight_vd)
    h_tp, weight_vp = (F.pad(part, (0, -d % LANES)).contiguous() for part in (h_td, weight_vd))
    sum_t, shift_t = h_tp.new_empty(total), h_tp.new_empty(total)
    dh_tp, dweight_vp = torch.empty_like(h_tp), torch.zeros_like(weight_vp if gradients else weight_vp[:0])
    tensors = (_at(h_tp), _at(weight_vp), _at(sum_t), _at(shift_t), _at(dh_tp), _at(dweight_vp) if gradients else 0)
    _call("lmu_head", *tensors, total, classes, h_tp.shape[1], threads())
    return sum_t.log() + shift_t, dh_tp[:, :d], dweight_vp[:, :d]
