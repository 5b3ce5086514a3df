"""What differs between two files: nothing, numbers by how much, or something else."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN = 60  # characters of a value
# What a training measures about itself, in `machine` of its result: no two trainings have the same.
MEASURED = ("seconds", "tokens_per_second", "mfu", "data_wait_share", "peak_memory_bytes")


@dataclass(frozen=True)
class Difference:
    """`size`: the largest difference of two numbers, relative above 1; infinite if anything but numbers differs."""

    size: float
    what: str


def compare(stored: Path, made: Path) -> Difference | None:
    """None if the files are equal: byte by byte, measured times and memory apart."""
    a, b = stored.read_bytes(), made.read_bytes()
    if a == b:
        return None
    try:
        left, right = _parsed(stored.suffix, a), _parsed(stored.suffix, b)
    except Exception as error:  # a damaged file can raise anything
        return Difference(math.inf, f"it cannot be read: {type(error).__name__}: {error}")
    if left is None:
        return Difference(math.inf, f"{len(a):,} bytes, made again {len(b):,}, the first other byte is {_first(a, b)}")
    if _drop_measured(left) and _drop_measured(right) and _written(left) == _written(right):
        return None
    return _largest(left, right, "")


def _drop_measured(result: Any) -> bool:
    """Remove the measured values of a training's result; whether this is one."""
    machine = result.get("machine") if isinstance(result, dict) else None
    if not isinstance(machine, dict) or not machine.keys() >= set(MEASURED):
        return False
    for name in MEASURED:
        del machine[name]
    return True


def _written(result: Any) -> str:
    return json.dumps(result, sort_keys=True)  # NaN is NaN here


def _parsed(suffix: str, data: bytes) -> Any:
    """The content as lists, dictionaries and values; None for text and pictures."""
    if suffix == ".json":
        return json.loads(data)
    if suffix == ".csv":
        return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(io.BytesIO(data)).to_pylist()
    return None


def _first(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _largest(a: Any, b: Any, where: str) -> Difference:
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        found = [_largest(a[key], b[key], f"{where}.{key}".lstrip(".")) for key in a]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        found = [_largest(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return _values(a, b, where)
    same = Difference(0.0, "the same values, written differently")
    return max(found, key=lambda difference: difference.size, default=same)


def _values(a: Any, b: Any, where: str) -> Difference:
    what = f"{where or 'its content'} is {_short(a)}, made again {_short(b)}"
    if a == b or (a != a and b != b):
        return Difference(0.0, "the same values, written differently")
    try:
        x, y = float(a), float(b)
    except (TypeError, ValueError):
        return Difference(math.inf, what)
    size = abs(x - y) / max(1.0, abs(x))
    return Difference(size if math.isfinite(size) else math.inf, what)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
