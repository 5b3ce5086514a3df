"""Checks of checksums: every file is as it was written, and was made from the present version of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from lmu_scaling.audit.results_folder import (
    AUDIT_FILES,
    BUNDLE,
    FAILED,
    FIGURES,
    LOCK_FILES,
    OUTSIDE_INVENTORY,
    RECORD,
    RECORDS,
    Finding,
    ResultsFolder,
)
from lmu_scaling.errors import UserError
from lmu_scaling.manifests import SUFFIX, find, read_sealed
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.runtime import sha256_file


def outputs(folder: ResultsFolder) -> Iterator[Finding]:
    """Every output in a manifest exists and has the recorded sha256."""
    for manifest, entry in _entries(folder, "outputs"):
        name = folder.name_of(entry, manifest)
        if name is None or _not_copied(folder, name):
            continue
        if name not in folder.files:
            if name not in folder.left_out and name not in temporary(folder):
                yield Finding("outputs", name, f"missing, but listed in {manifest}")
        elif folder.sha256(name) != entry["sha256"]:
            yield Finding("outputs", name, f"changed after it was written (its checksum is in {manifest})")


def inputs(folder: ResultsFolder) -> Iterator[Finding]:
    """Every output (figure, table, run) was made from the present version of its inputs."""
    for manifest, entry in _entries(folder, "inputs"):
        name = folder.name_of(entry, manifest)
        if name is None:
            yield from _source_file(folder, manifest, entry)
        elif name in folder.files and folder.sha256(name) != entry["sha256"]:
            yield Finding(
                "inputs", name, f"is another version than the one {manifest.removesuffix(SUFFIX)} was made from"
            )


def _source_file(folder: ResultsFolder, manifest: str, entry: dict[str, Any]) -> Iterator[Finding]:
    path = find(entry, folder.files[manifest]) if entry.get("in") == "repository" else None
    if path is None or not path.is_relative_to(REPOSITORY) or not path.is_file():  # a manifest may name anything
        return
    if sha256_file(path) != entry["sha256"]:
        what = f"{manifest.removesuffix(SUFFIX)} was made with another version of this file"
        yield Finding("staleness", entry["path"], what, "note")


def inventory(folder: ResultsFolder) -> Iterator[Finding]:
    """No file changed since the last audit, whose inventory also covers files without a manifest (logs, timings).

    A job that ran since may have renewed its files: its manifest is another one, and vouches for its outputs; logs and
    timings carry the job's name.
    """
    known: dict[str, str] = folder.record.get("inventory", {})
    if not known:
        yield Finding("inventory", RECORD, "there is no earlier audit to compare with", "note")
        return
    renewed = {name for name in folder.manifests if folder.sha256(name) != known.get(name)}
    vouched = renewed | {
        name for manifest, entry in _entries(folder, "outputs", renewed) if (name := folder.name_of(entry, manifest))
    }
    logged = {trace for manifest in renewed for trace in traces(manifest, folder.manifests[manifest]["job"])}
    for name, sha256 in known.items():
        if _not_copied(folder, name) or (name in folder.files and folder.sha256(name) == sha256):
            continue
        if "/live/" in name and f"{name.partition('/live/')[0]}/train{SUFFIX}" in renewed:
            continue  # of a run that was trained again
        if name not in folder.files:
            if name not in folder.left_out:
                yield Finding("inventory", name, f"missing, but in the audit of {folder.record['time']}")
        elif name not in vouched and Path(name).with_suffix("").as_posix() not in logged:
            yield Finding("inventory", name, f"changed since the audit of {folder.record['time']}")
    if renewed:
        what = f"{len(renewed)} jobs have run since the audit of {folder.record['time']}"
        yield Finding("inventory", RECORD, what, "note")
    listed = in_manifests(folder)
    for name in folder.files:
        if name not in known and name not in OUTSIDE_INVENTORY and name not in listed:
            trace = Path(name).with_suffix("").as_posix() in logged or "/live/" in name
            if not trace:
                yield Finding("inventory", name, "new since the last audit, and in no manifest", "note")


def traces(manifest: str, job: str) -> list[str]:
    """Log and timing of the job of a manifest, without suffix: `logs/figure/loss_vs_N`, `logs/train/<run>`."""
    rule, path = job.replace("-", "_"), Path(manifest.removesuffix(SUFFIX))
    return [
        f"{kind}/{rule}{key}"
        for kind in ("logs", "benchmarks")
        for key in ("", f"/{path.name}", f"/{path.parent.name}")
    ]


def audit_files(folder: ResultsFolder) -> Iterator[Finding]:
    """The two files of the last audit have the checksums in its manifest."""
    manifest = f"audit/audit{SUFFIX}"
    if manifest not in folder.files:
        return
    try:
        own = read_sealed(folder.files[manifest])
    except UserError as error:
        yield Finding("seals", manifest, error.what)
        return
    for entries in own["outputs"].values():
        for entry in entries:
            name = folder.name_of(entry, manifest)
            if name in folder.files and folder.sha256(name) != entry["sha256"]:
                yield Finding("outputs", name, f"changed after it was written (its checksum is in {manifest})")


def in_manifests(folder: ResultsFolder) -> set[str]:
    """Files whose checksum is in a manifest, and the manifests themselves, which are sealed."""
    found = set(folder.manifests)
    for group in ("outputs", "inputs"):
        found |= {name for manifest, entry in _entries(folder, group) if (name := folder.name_of(entry, manifest))}
    return found | set(shards(folder))


def shards(folder: ResultsFolder) -> dict[str, dict[str, Any]]:
    """Token shards; their checksums are in tokens/index.json."""
    data = folder.json("tokens/index.json")
    return {f"tokens/{shard['file']}": shard for shard in data["shards"]} if data else {}


def uncovered(folder: ResultsFolder) -> list[str]:
    """Files without any checksum."""
    covered = in_manifests(folder) | set(folder.record.get("inventory", {}))
    covered |= {BUNDLE, FAILED, RECORDS, *AUDIT_FILES, *LOCK_FILES}
    return [name for name in folder.files if name not in covered]


def temporary(folder: ResultsFolder) -> set[str]:
    """Files that the workflow deletes after use; their manifests stay."""
    return {
        name
        for manifest, entry in _entries(folder, "outputs")
        if (name := folder.name_of(entry, manifest)) and name.startswith("tokens/parts/") and not name.endswith(".json")
    }


def _entries(
    folder: ResultsFolder, group: str, only: Collection[str] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest, content in folder.manifests.items():
        if only is not None and manifest not in only:
            continue
        for entries in content.get(group, {}).values():
            for entry in entries:
                yield manifest, entry


def _not_copied(folder: ResultsFolder, name: str) -> bool:
    """True for a figure if the figures are not here: they cannot be checked."""
    return name.startswith(f"{FIGURES}/") and folder.figures is None
