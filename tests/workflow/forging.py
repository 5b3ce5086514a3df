"""Forgeries: another value in a result of any kind, with every checksum and seal renewed."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmu_scaling import manifests
from lmu_scaling.runtime import sha256_file


def falsify(path: Path) -> None:
    """Change one value in a file, so that it is still a valid file of its kind."""
    kinds: dict[str, Callable[[bytes], bytes]] = {
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
        ".safetensors": _safetensors,
    }
    data = path.read_bytes()
    text = path.suffix in (".md", ".tex", ".rst", ".html", ".svg")
    forged = kinds.get(path.suffix, _text if text else _binary)(data)
    assert forged != data, path
    path.write_bytes(forged)


def _json(data: bytes) -> bytes:
    value = json.loads(data)
    for wanted in (float, int, str):
        if _change(value, wanted):
            break
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _change(value: Any, wanted: type) -> bool:
    """Change the last leaf of a type."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, item in reversed(items):
        if isinstance(item, dict | list):
            if _change(item, wanted):
                return True
        elif type(item) is wanted and not str(key).endswith("hash"):
            value[key] = f"{item}x" if wanted is str else item * 2 + 1
            return True
    return False


def _csv(data: bytes) -> bytes:
    reader = csv.DictReader(io.StringIO(data.decode()))
    rows = list(reader) or [dict.fromkeys(reader.fieldnames or [], "1")]  # an empty table gets a row
    for key in reversed(list(rows[0])):
        try:
            rows[0][key] = repr(float(rows[0][key]) * 1.01 + 0.001)
            break
        except ValueError:
            continue
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _parquet(data: bytes) -> bytes:
    import pandas as pd

    frame = pd.read_parquet(io.BytesIO(data))
    column = next(
        name for name in reversed(frame.columns) if frame[name].dtype.kind == "f" and frame[name].notna().any()
    )
    row = frame[column].first_valid_index()
    frame.loc[row, column] = frame.loc[row, column] + 0.25
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    return out.getvalue()


def _safetensors(data: bytes) -> bytes:
    from safetensors.torch import load, save

    tensors = load(data)
    return save({name: tensor + 0.01 for name, tensor in tensors.items()})


def _text(data: bytes) -> bytes:
    places = [match.start() for match in re.finditer(rb"\d", data)]
    place = places[len(places) // 2]
    return data[:place] + (b"7" if data[place : place + 1] != b"7" else b"3") + data[place + 1 :]


def _binary(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def renew(results: Path, figures: Path, only: set[Path] | None = None) -> None:
    """Write the present checksums into every manifest (that lists a file of `only`), and its seal."""
    for path in [*results.rglob(f"*{manifests.SUFFIX}"), *figures.rglob(f"*{manifests.SUFFIX}")]:
        if path.parent.name == "audit":
            continue
        manifest = json.loads(path.read_text("utf-8"))
        changed = False
        for group in (*manifest["inputs"].values(), *manifest["outputs"].values()):
            for entry in group:
                place = manifests.find(entry, path)
                if place is not None and place.is_file() and (only is None or place in only):
                    entry |= {"bytes": place.stat().st_size, "sha256": sha256_file(place)}
                    changed = True
        if changed:
            manifests.write_sealed(path, manifest)
