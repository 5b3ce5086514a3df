"""Helpers between the science and the machine: atomic files, checksums, progress.

Nothing here imports torch, so that light jobs stay light.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import glob
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from lmu_scaling.errors import DiskFull, ResultsError

AFFECTS_RESULTS = False
T = TypeVar("T")
ABANDONED = 3600.0  # [s] after which a partial file of another machine is nobody's
# A file where a folder should be or vice versa, an invalid name, a failing disk.
UNWRITABLE = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO)


@contextmanager
def disk_full_is_explained(path: Path) -> Iterator[None]:
    """Turn errors that keep a file from being written (disk full, read-only, …) into three-line messages."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                "no space left on the device (or the quota is used up)",
                str(path),
                "free some space and run the same command again; `python -m lmu_scaling plan` says how much is needed",
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ResultsError(
                f"cannot write: {error.strerror}", str(path), "make the folder writable, or run in another directory"
            ) from error
        if error.errno in UNWRITABLE:
            raise ResultsError(
                f"cannot write: {error.strerror}", str(path), "remove what is in the way, or run in another directory"
            ) from error
        raise


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write beside `path`, fsync, then rename: the final name holds everything or does not exist."""
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{machine()}.{os.getpid()}.partial")
    with disk_full_is_explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_stale(path)
        try:
            with open(scratch, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)


def _clear_stale(path: Path) -> None:
    """Remove partial files that dead processes left beside `path`; a live process may still be writing its own.

    Processes of another machine cannot be seen: their files go when they are an hour older than the newest beside
    them. The disk sets both dates, so that no clock of a machine matters.
    """
    found = {scratch: _modified(scratch) for scratch in path.parent.glob(f".{glob.escape(path.name)}.*.partial")}
    if not found:
        return
    newest = max(*found.values(), _modified(path.parent))
    for scratch, modified in found.items():
        name, _, number = scratch.name.removesuffix(".partial").rpartition(".")
        foreign = not name.endswith(f".{machine()}") and number.isdigit()
        if newest - modified > ABANDONED if foreign else not (number.isdigit() and _alive(int(number))):
            scratch.unlink(missing_ok=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


@functools.cache
def machine() -> str:
    """What a process number refers to: this machine since it was started, or this container on it."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return sha256_bytes(" ".join(parts).encode())[:8]


def canonical_json(value: Any) -> str:
    """One spelling per value, so that hashes of equal specs are equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write_json(path: str | Path, value: Any) -> None:
    with atomic_write(path) as file:
        json.dump(value, file, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def read_json(path: str | Path, *keys: str) -> Any:
    """Read JSON; a missing or damaged file is explained. With `keys`, it is an object that has a value for each."""
    remedy = f"restore it from a copy, or make it again: snakemake --cores all --forcerun {path}"
    try:
        value = json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError as error:
        raise ResultsError("a result is missing", str(path), "run the workflow for this experiment first") from error
    except OSError as error:
        raise ResultsError(f"cannot be read: {error.strerror}", str(path), "make the file readable") from error
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"not valid JSON: {error}", str(path), remedy) from error
    missing = [key for key in keys if not isinstance(value, dict) or value.get(key) is None]
    if missing:
        raise ResultsError(f"damaged: it has no {', '.join(missing)}", str(path), remedy)
    return value


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | Path, chunk: int = 1 << 20) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(chunk):
            digest.update(block)
    return digest.hexdigest()


def keep_freed_memory() -> None:
    """Make glibc keep freed memory: a training loop allocates the same large buffers in every step."""
    _mallopt(-4, 0)  # M_MMAP_MAX: no separate mappings
    _mallopt(-1, -1)  # M_TRIM_THRESHOLD: never trim; the largest positive value is only 2 GiB


def share_freed_memory() -> None:
    """Use one heap for all threads, so that memory freed by one is reused by the next (M_ARENA_MAX)."""
    _mallopt(-8, 1)


def _mallopt(option: int, value: int) -> None:
    """Set an option of glibc's allocator; no effect on other systems."""
    if sys.platform.startswith("linux"):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(option, value)


class Progress:
    """A bar with ETA on a terminal; one line every `every` seconds elsewhere (logs, SLURM)."""

    def __init__(self, total: float | None, label: str, unit: str = "it", every: float = 15.0) -> None:
        self.total, self.label, self.unit, self.every = total, label, unit, every
        self.done, self.already, self.note = 0.0, 0.0, ""  # `already`: done before this process, not counted as speed
        self.start = self.printed = time.monotonic()
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, desc=label, unit=unit, unit_scale=True, dynamic_ncols=True, leave=False)

    def update(self, amount: float = 1, note: str = "") -> None:
        self.done += amount
        self.note = note or self.note
        if self.bar is not None:
            if note:
                self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(amount)
        elif time.monotonic() - self.printed >= self.every:
            self._line()

    def _line(self) -> None:
        self.printed = time.monotonic()
        seconds = self.printed - self.start
        rate = (self.done - self.already) / max(seconds, 1e-9)
        share = f" {100 * self.done / self.total:5.1f} %" if self.total else ""
        eta = f", {duration((self.total - self.done) / rate)} left" if self.total and rate > 0 else ""
        note = f" | {self.note}" if self.note else ""
        print(
            f"{self.label}:{share} {si(self.done)} {self.unit} at {si(rate)}/s{eta}{note}", file=sys.stderr, flush=True
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.done and time.monotonic() - self.start >= self.every:
            self._line()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def progress(items: Iterable[T], label: str, total: int | None = None, unit: str = "it") -> Iterator[T]:
    with Progress(total, label, unit) as bar:
        for item in items:
            yield item
            bar.update()


def si(value: float) -> str:
    """13107200000 → '13.1B': three significant digits and a suffix."""
    for bound, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= bound:
            return f"{value / bound:.3g}{suffix}"
    return f"{value:.3g}"


def byte_size(count: float) -> str:
    """29344276480 → '29.3 GB'."""
    for bound, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= bound:
            return f"{count / bound:.3g} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    """Seconds in a readable unit."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
