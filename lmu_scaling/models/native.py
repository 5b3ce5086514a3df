"""Compiles and calls the C kernels in `kernels/` on a CPU. Their callers are `lmu_kernels.py` and `loss.py`.

The system's C compiler needs about a second, once per machine: the library is cached under a hash of source, compiler
and processor. Without a compiler `kernels()` is None, and callers use torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmu_scaling.errors import ModelError

C_SOURCES = ("kernels/share.c", "kernels/vector.h")  # of all kernels; their callers name the others (fingerprint.py)
FOLDER = Path(__file__).with_name("kernels")
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-pthread")
WITHOUT_AVX512 = ("-mno-avx512f",) if platform.machine() in ("x86_64", "AMD64") else ()
MOST_THREADS = 64  # as in vector.h
POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float


# Building -----------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "lmu_scaling"


def _processor() -> str:
    """The library fits one kind of processor (-march=native); a cluster's nodes may differ and share a home folder."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def compile_library(compiler: str, folder: Path, avx512: bool = True) -> Path | None:
    """The shared library, built unless it exists already; None if the compiler fails or the folder is not writable."""
    sources, flags = sorted(FOLDER.glob("*.c")), FLAGS if avx512 else FLAGS + WITHOUT_AVX512
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        texts = [path.read_text("utf-8") for path in sorted(FOLDER.iterdir()) if path.suffix in (".c", ".h")]
        identity = "\0".join((*texts, *flags, version, platform.machine(), _processor()))
        target = folder / f"kernels-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch) / "kernels.so"
                command = [compiler, *flags, *map(str, sources), "-o", str(built), "-lm"]
                subprocess.run(command, capture_output=True, check=True)
                os.replace(built, target)
        return target
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.cache
def load_library(avx512: bool = True) -> ctypes.CDLL | None:
    """The compiled functions, from the cache if it can be written; None without a compiler. `CC` chooses it."""
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    path = compile_library(compiler, cache_folder(), avx512)
    if path is not None:
        return _load(path)
    with tempfile.TemporaryDirectory() as scratch:  # build for this process only
        path = compile_library(compiler, Path(scratch), avx512)
        return None if path is None else _load(path)


def _load(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The compiled functions that are used, or None.

    `LMU_SCALING_NATIVE=0` switches them off, `LMU_SCALING_NATIVE=portable` takes those without AVX-512.
    """
    switch = os.environ.get("LMU_SCALING_NATIVE")
    return None if switch == "0" else load_library(avx512=switch != "portable")


@functools.cache
def vectors() -> int:
    """Of this processor: 0 neither of these (or no kernels), 1 AVX-512, 2 also AVX512-BF16 (used by the loss)."""
    if kernels() is None or os.environ.get("LMU_SCALING_NATIVE") == "portable":
        return 0
    return int(library().lmu_head_level())


def allowed(compile: str) -> bool:
    """Whether kernels may be used: "off" forbids them, "auto" uses them if they can be built, "on" requires them."""
    if compile == "off":
        return False
    if kernels() is None and compile == "on":
        raise ModelError(
            "no C compiler was found, so the compiled kernels cannot be built",
            "compile: on",
            "install gcc or clang (or set CC), or use compile: auto",
        )
    if kernels() is None:
        _note_missing_compiler()
    return kernels() is not None


@functools.cache
def _note_missing_compiler() -> None:
    print(
        "note: no C compiler was found: torch is used instead of compiled kernels; it is slower, and its losses agree "
        "to 1e-6, not to the last bit",
        file=sys.stderr,
        flush=True,
    )


# Calling ------------------------------------------------------------------------------------------------------------


class Kernel:
    """A C function by name. Tensors are passed as pointers; they must be contiguous, and float32 or bfloat16."""

    def __init__(self, name: str, types: Sequence[Any]) -> None:
        self.name, self.types = name, types

    def __call__(self, *arguments: Any) -> None:
        function = getattr(library(), self.name)
        function.argtypes = self.types
        if function(*(address(part) if isinstance(part, Tensor) else part for part in arguments)):
            raise MemoryError(f"no memory for the scratch space of {self.name}")


def library() -> ctypes.CDLL:
    found = kernels()
    assert found is not None, "callers check kernels() first"
    return found


def address(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    assert tensor.dtype in (torch.float32, torch.bfloat16)
    return tensor.data_ptr()


def threads() -> int:
    return min(torch.get_num_threads(), MOST_THREADS)
