"""What checksums cannot say: runs match their specs, tables follow from the evaluations, shards from their manifest."""

from __future__ import annotations

import csv
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmu_scaling.audit.checksums import shards
from lmu_scaling.audit.folder import Finding, Folder
from lmu_scaling.counting import count
from lmu_scaling.models import ModelSpec
from lmu_scaling.spec import spec_hash, tokens_of

CLOSE = 1e-9


def data(folder: Folder) -> Iterator[Finding]:
    """Token shards are as long as their manifest says, and hash to what it says."""
    manifest = folder.json("tokens/manifest.json")
    if not manifest:
        yield Finding("data", "tokens/manifest.json", "there is no data manifest: shards were not checked", "note")
        return
    for name, shard in shards(folder).items():
        if name not in folder.files:
            if name not in folder.left_out:
                yield Finding("data", name, "missing, though tokens/manifest.json lists it")
        elif folder.files[name].stat().st_size != 2 * shard["tokens"]:
            yield Finding("data", name, f"does not hold the {shard['tokens']:,} tokens that its manifest promises")
        elif folder.sha256(name) != shard["sha256"]:
            yield Finding("data", name, "its checksum is not the one in tokens/manifest.json")
    for split, facts in manifest["splits"].items():
        total = sum(shard["tokens"] for shard in manifest["shards"] if shard["split"] == split)
        if total != facts["tokens"]:
            yield Finding(
                "data", "tokens/manifest.json", f"shards of {split} hold {total:,} tokens, not {facts['tokens']:,}"
            )


# -------------------------------------------------------------------------------------------------------------- runs
def run_names(folder: Folder) -> list[str]:
    return sorted({name.split("/")[1] for name in folder.files if _is_result(name)})


def _is_result(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 3 and parts[0] == "training" and parts[2] == "result.json"


def runs(folder: Folder) -> Iterator[Finding]:
    """Each run is what its spec says (data, steps, parameters), and the spec is what the configuration asks for."""
    tokens = folder.json("tokens/manifest.json") or {}
    for run in run_names(folder):
        spec, result = folder.json(f"training/{run}/spec.json"), folder.json(f"training/{run}/result.json")
        if not spec or not result:
            yield Finding("runs", f"training/{run}", "spec.json or result.json is missing or damaged")
            continue
        yield from _compare("runs", f"training/{run}/result.json", _expected(spec, tokens, result), result)
        yield from _weights(folder, run, spec)
    yield from _configured(folder)


def _expected(spec: dict[str, Any], tokens: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    counts = count(ModelSpec.from_dict(spec["model"]))
    expected = {
        "spec_hash": spec_hash(spec),
        "n_exact": counts.n_exact,
        "n_total": counts.n_total,
        "flops_per_token": counts.flops_training,
        "learning_rate": spec["training"]["learning_rate"],
    }
    if not result.get("diverged"):
        expected |= {"steps": spec["training"]["steps"], "tokens": tokens_of(spec)}
    return expected | ({"tokens_digest": tokens["digest"]} if tokens else {})


def _weights(folder: Folder, run: str, spec: dict[str, Any]) -> Iterator[Finding]:
    name = f"training/{run}/weights.safetensors"
    if name not in folder.files:
        if name not in folder.left_out:
            yield Finding("runs", name, "missing")
        return
    try:
        header = safetensors_header(folder.files[name])
        found = sum(math.prod(entry["shape"]) for key, entry in header.items() if key != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        yield Finding("runs", name, f"not a safetensors file: {error}")
        return
    expected = count(ModelSpec.from_dict(spec["model"])).n_total
    if found != expected:
        yield Finding("runs", name, f"holds {found:,} numbers, but its spec describes {expected:,} parameters")


def safetensors_header(path: Path) -> dict[str, Any]:
    """Names, shapes and places of the tensors, without reading any."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        return json.loads(file.read(length))


def _configured(folder: Folder) -> Iterator[Finding]:
    """The runs that exist are those that the configuration asks for, with the specs it implies."""
    if not folder.config:
        yield Finding("runs", "config.json", "there is no configuration: specs were not compared with it", "note")
        return
    from lmu_scaling import experiment
    from lmu_scaling.config import validate
    from lmu_scaling.errors import UserError

    try:
        config = validate(folder.config, "config.json")
    except UserError as error:
        yield Finding("runs", "config.json", error.what)
        return
    found = set(run_names(folder))
    wanted = {run.name: run for run in (*experiment.runs(config), *experiment.sweeps(config))}
    for name in sorted(set(wanted) - found):
        yield Finding("runs", f"training/{name}", "the configuration asks for this run, but it has no result")
    for name in sorted(found - set(wanted)):
        yield Finding("runs", f"training/{name}", "left over from another configuration: no table uses it", "note")
    for name in sorted(found & set(wanted)):
        spec, asked = folder.json(f"training/{name}/spec.json"), experiment.spec_of(config, wanted[name])
        if asked["training"]["learning_rate"] is None:
            tuning = folder.json(f"training/tuning/{wanted[name].variant}-{wanted[name].size}.json") or {}
            asked["training"]["learning_rate"] = tuning.get("learning_rate")
        if spec and spec_hash(spec) != spec_hash(asked):
            yield Finding(
                "runs", f"training/{name}/spec.json", f"is not what config.json implies ({_differ(spec, asked)})"
            )


def _differ(a: dict[str, Any], b: dict[str, Any]) -> str:
    keys = [f"{s}.{k}" for s in ("model", "data", "training") for k in b[s] if a.get(s, {}).get(k) != b[s][k]]
    return ", ".join(keys) or "format"


# ------------------------------------------------------------------------------------------------------------ tables
def evaluations(folder: Folder) -> Iterator[Finding]:
    """Each summary belongs to its run, and is the mean of its sequences."""
    tokens = folder.json("tokens/manifest.json") or {}
    for run in run_names(folder):
        name = f"evaluation/{run}/summary.json"
        summary, spec = folder.json(name), folder.json(f"training/{run}/spec.json")
        if not summary or not spec:
            continue
        expected = {"spec_hash": spec_hash(spec)} | ({"tokens_digest": tokens["digest"]} if tokens else {})
        yield from _compare("evaluations", name, expected, summary)
        means = _means(folder, f"evaluation/{run}/sequences.parquet")
        for split, facts in summary["splits"].items():
            if split in means:
                yield from _compare("evaluations", name, {"loss": means[split]}, facts, f"{split}.", 1e-6)


def _means(folder: Folder, name: str) -> dict[str, float]:
    """Loss per split, weighted by tokens."""
    if name not in folder.files:
        return {}
    rows = read_parquet(folder.files[name])
    sums: dict[str, list[float]] = {}
    for row in rows:
        entry = sums.setdefault(row["split"], [0.0, 0.0])
        entry[0] += row["loss"] * row["tokens"]
        entry[1] += row["tokens"]
    return {split: total / max(weight, 1) for split, (total, weight) in sums.items()}


def read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path).to_pylist()
    except (OSError, ValueError, pa.ArrowException):
        return []  # its checksum says that it is damaged


def tables(folder: Folder) -> Iterator[Finding]:
    """Every row of the table of runs is what the run's own files say."""
    name = "analysis/runs.csv"
    if name not in folder.files:
        yield Finding("tables", name, "there is no table of runs", "note")
        return
    for row in read_csv(folder.files[name]):
        run = row.get("run", "")
        summary, result = folder.json(f"evaluation/{run}/summary.json"), folder.json(f"training/{run}/result.json")
        if not summary or not result:
            yield Finding("tables", name, f"row {run!r} has no evaluation or no result behind it")
            continue
        test, validation = (summary["splits"].get(split, {}) for split in ("test", "validation"))
        expected = {
            "spec_hash": result["spec_hash"],
            "n_exact": result["n_exact"],
            "tokens": result["tokens"] if not result.get("diverged") else None,
            "learning_rate": result["learning_rate"],
            "test_loss": test.get("loss"),
            "test_se": test.get("se_sequences"),
            "validation_loss": validation.get("loss"),
            "bits_per_byte": test.get("bits_per_byte"),
        }
        yield from _compare("tables", name, expected, row, f"{run}.")


def read_csv(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        return []  # its checksum says that it is damaged


def _compare(
    check: str, where: str, expected: dict[str, Any], found: dict[str, Any], prefix: str = "", close: float = CLOSE
) -> Iterator[Finding]:
    for key, value in expected.items():
        if value is not None and not _same(value, found.get(key), close):
            yield Finding(check, where, f"{prefix}{key} is {found.get(key)!r}, but must be {value!r}")


def _same(a: Any, b: Any, close: float) -> bool:
    if isinstance(a, int | float) and not isinstance(a, bool):
        try:
            return math.isclose(a, float(b), rel_tol=close, abs_tol=close)
        except (TypeError, ValueError):
            return False
    return str(a) == str(b)
