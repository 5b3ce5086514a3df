"""Checks of content: runs match their specs, tables the evaluations, shards their index."""

from __future__ import annotations

import csv
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmu_scaling import experiment
from lmu_scaling.audit.checksums import shards
from lmu_scaling.audit.results_folder import Finding, ResultsFolder
from lmu_scaling.config import validate
from lmu_scaling.counting import count
from lmu_scaling.errors import ResultsError, UserError
from lmu_scaling.sections import Config
from lmu_scaling.spec import Run, RunSpec
from lmu_scaling.training.search import AXES, Steps, next_point
from lmu_scaling.training.specify import trial_of

CLOSE = 1e-9


def data(folder: ResultsFolder) -> Iterator[Finding]:
    """Token shards have the length and the checksum that tokens/index.json states."""
    manifest = folder.json("tokens/index.json")
    if not manifest:
        yield Finding("data", "tokens/index.json", "missing: shards were not checked", "unseen")
        return
    for name, shard in shards(folder).items():
        if name not in folder.files:
            if name not in folder.left_out:
                yield Finding("data", name, "missing, but listed in tokens/index.json")
        elif folder.files[name].stat().st_size != 2 * shard["tokens"]:
            yield Finding("data", name, f"does not hold {shard['tokens']:,} tokens, as tokens/index.json states")
        elif folder.sha256(name) != shard["sha256"]:
            yield Finding("data", name, "its checksum differs from the one in tokens/index.json")
    for name in sorted({f"tokens/{shard['part']:05d}.json" for shard in manifest["shards"]}):
        part = folder.json(name)
        listed = [{k: v for k, v in s.items() if k != "part"} for s in manifest["shards"] if _of_part(s, name)]
        if part and (part.get("shards"), part.get("vocab")) != (listed, manifest["vocab"]):
            yield Finding("data", name, "disagrees with tokens/index.json")
    for split, facts in manifest["splits"].items():
        total = sum(shard["tokens"] for shard in manifest["shards"] if shard["split"] == split)
        if total != facts["tokens"]:
            yield Finding(
                "data", "tokens/index.json", f"shards of {split} hold {total:,} tokens, not {facts['tokens']:,}"
            )


def _of_part(shard: dict[str, Any], name: str) -> bool:
    return name == f"tokens/{shard['part']:05d}.json"


# -------------------------------------------------------------------------------------------------------------- runs
def run_names(folder: ResultsFolder) -> list[str]:
    return sorted({name.split("/")[1] for name in folder.files if _is_result(name)})


def _is_result(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 3 and parts[0] == "training" and parts[2] == "result.json"


def runs(folder: ResultsFolder) -> Iterator[Finding]:
    """Each run matches its spec (data, steps, parameters), and each spec matches the configuration."""
    tokens = folder.json("tokens/index.json") or {}
    for run in run_names(folder):
        spec, result = read_spec(folder, run), folder.json(f"training/{run}/result.json")
        if not spec or not result:
            yield Finding("runs", f"training/{run}", "spec.json or result.json is missing or damaged")
            continue
        yield from _compare("runs", f"training/{run}/result.json", _expected(spec, tokens, result), result)
        yield from _weights(folder, run, spec)
        yield from _last_losses(folder, run, result)
    yield from _configured(folder)


def read_spec(folder: ResultsFolder, run: str) -> RunSpec | None:
    """The spec of a run; None if it is missing or damaged."""
    try:
        return RunSpec.from_dict(folder.json(f"training/{run}/spec.json") or {})
    except ResultsError:
        return None


def _expected(spec: RunSpec, tokens: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    counts = count(spec.model)
    expected = {
        "spec_hash": spec.hash,
        "n_exact": counts.n_exact,
        "n_total": counts.n_total,
        "flops_per_token": counts.flops_training,
        "learning_rate": spec.training.learning_rate,
    }
    if not result.get("diverged"):
        expected |= {"steps": spec.training.steps, "tokens": spec.tokens}
    return expected | ({"tokens_digest": tokens["digest"]} if tokens else {})


def _last_losses(folder: ResultsFolder, run: str, result: dict[str, Any]) -> Iterator[Finding]:
    """The losses in result.json are those of the last step in the history."""
    name = f"training/{run}/history.parquet"
    history = read_parquet(folder.files[name]) if name in folder.files else []
    if history:
        last = {"final_loss": history[-1]["loss"], "validation_loss": history[-1]["validation_loss"]}
        yield from _compare("runs", f"training/{run}/result.json", last, result)


def _weights(folder: ResultsFolder, run: str, spec: RunSpec) -> Iterator[Finding]:
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
    expected = count(spec.model).n_total
    if found != expected:
        yield Finding("runs", name, f"holds {found:,} parameters, but its spec describes {expected:,}")


def safetensors_header(path: Path) -> dict[str, Any]:
    """Names, shapes and offsets of the tensors, without reading them."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        return json.loads(file.read(length))


def _configured(folder: ResultsFolder) -> Iterator[Finding]:
    """The runs that exist are those of the configuration, with the specs that follow from it."""
    if not folder.config:
        yield Finding("runs", "config.json", "missing: specs were not compared with the configuration", "unseen")
        return
    try:
        config = validate(folder.config, "config.json")
    except UserError as error:
        yield Finding("runs", "config.json", error.what)
        return
    found = set(run_names(folder))
    wanted = {run.name: run for run in (*experiment.runs(config), *experiment.sweeps(config))}
    for name in sorted(set(wanted) - found):
        yield Finding("runs", f"training/{name}", "the configuration has this run, but it has no result")
    for name in sorted(found - set(wanted)):
        yield Finding("runs", f"training/{name}", "not in the configuration: no table uses it", "note")
    for name in sorted(found & set(wanted)):
        spec, asked = read_spec(folder, name), _asked(folder, config, wanted[name])
        if spec and spec.hash != asked.hash:
            what = f"does not follow from config.json (different: {_different_keys(spec, asked)})"
            yield Finding("runs", f"training/{name}/spec.json", what)


def _asked(folder: ResultsFolder, config: Config, run: Run) -> RunSpec:
    """The spec that follows from the configuration and the sweeps."""
    source, template = experiment.origin(config, run), experiment.spec_of(config, run)
    try:
        if source.earlier:
            trials = [trial_of(folder.json(f"training/{each.name}/result.json") or {}) for each in source.earlier]
            cell = experiment.cell_of(config, run)
            assert cell is not None
            steps = Steps(*experiment.search_steps(config, cell).values())  # type: ignore[arg-type]
            return template.tuned(*next_point(trials, steps, run.name))
        chosen = {} if source.tuning is None else folder.json(f"training/tuning/{source.tuning.name}.json") or {}
        wanted = [key for key in AXES if key not in source.fixed]
        return template.tuned(**{key: chosen.get(key) for key in wanted})
    except (KeyError, TypeError, ResultsError):  # a damaged result, which is reported by itself
        return template


def _different_keys(one: RunSpec, other: RunSpec) -> str:
    a, b = one.asdict(), other.asdict()
    keys = [f"{s}.{k}" for s in ("model", "data", "training") for k in b[s] if a[s][k] != b[s][k]]
    return ", ".join(keys) or "format"


# ------------------------------------------------------------------------------------------- evaluations and tables
def evaluations(folder: ResultsFolder) -> Iterator[Finding]:
    """Each summary belongs to its run and is the mean over its sequences."""
    tokens = folder.json("tokens/index.json") or {}
    for run in run_names(folder):
        name = f"evaluation/{run}/summary.json"
        summary, spec = folder.json(name), read_spec(folder, run)
        if not summary or not spec:
            continue
        expected: dict[str, Any] = {"spec_hash": spec.hash} | ({"tokens_digest": tokens["digest"]} if tokens else {})
        yield from _compare("evaluations", name, expected, summary)
        means = _means(folder, f"evaluation/{run}/sequences.parquet")
        for split, facts in summary["splits"].items():
            if split in means:
                yield from _compare("evaluations", name, {"loss": means[split]}, facts, f"{split}.", 1e-6)


def _means(folder: ResultsFolder, name: str) -> dict[str, float]:
    """Mean loss per split, weighted by tokens."""
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
        return []  # damaged: its checksum is a mismatch


def tables(folder: ResultsFolder) -> Iterator[Finding]:
    """Every row of the table of runs agrees with the run's own files."""
    name = "analysis/runs.csv"
    if name not in folder.files:
        yield Finding("tables", name, "missing: the table of runs was not checked", "unseen")
        return
    for row in read_csv(folder.files[name]):
        run = row.get("run", "")
        summary, result = folder.json(f"evaluation/{run}/summary.json"), folder.json(f"training/{run}/result.json")
        if not summary or not result:
            yield Finding("tables", name, f"row {run!r} has no evaluation or no result")
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
        return []  # damaged: its checksum is a mismatch


def _compare(
    check: str, where: str, expected: dict[str, Any], found: dict[str, Any], prefix: str = "", close: float = CLOSE
) -> Iterator[Finding]:
    for key, value in expected.items():
        if value is not None and not _same(value, found.get(key), close):
            yield Finding(check, where, f"{prefix}{key} is {found.get(key)!r}, expected {value!r}")


def _same(a: Any, b: Any, close: float) -> bool:
    if isinstance(a, int | float) and not isinstance(a, bool):
        try:
            return math.isclose(a, float(b), rel_tol=close, abs_tol=close)
        except (TypeError, ValueError):
            return False
    return str(a) == str(b)
