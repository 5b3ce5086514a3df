"""Checksums: every file is the one that was written, and was made from the inputs that are there now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmu_scaling.audit.folder import BUNDLE, FIGURES, OUTSIDE_INVENTORY, OWN, Finding, Folder
from lmu_scaling.manifests import REPOSITORY, SUFFIX, find
from lmu_scaling.runtime import sha256_file


def outputs(folder: Folder) -> Iterator[Finding]:
    """Every output that a manifest lists exists with the recorded sha256."""
    for manifest, entry in _entries(folder, "outputs"):
        name = folder.name_of(entry, manifest)
        if name is None or _elsewhere(folder, name):
            continue
        if name not in folder.files:
            if name not in folder.left_out and name not in temporary(folder):
                yield Finding("outputs", name, f"missing, though {manifest} lists it")
        elif folder.sha256(name) != entry["sha256"]:
            yield Finding("outputs", name, f"changed after it was written ({manifest} has its checksum)")


def inputs(folder: Folder) -> Iterator[Finding]:
    """Every product was made from the inputs that are there now: figures from these tables, tables from these runs."""
    for manifest, entry in _entries(folder, "inputs"):
        name = folder.name_of(entry, manifest)
        if name is None:
            yield from _source_file(folder, manifest, entry)
        elif name in folder.files and folder.sha256(name) != entry["sha256"]:
            yield Finding("inputs", name, f"is not the version that {manifest.removesuffix(SUFFIX)} was made from")


def _source_file(folder: Folder, manifest: str, entry: dict[str, Any]) -> Iterator[Finding]:
    path = find(entry, folder.files[manifest]) if entry.get("in") == "repository" else None
    if path is None or not path.is_relative_to(REPOSITORY) or not path.is_file():  # a manifest may name anything
        return
    if sha256_file(path) != entry["sha256"]:
        what = f"{manifest.removesuffix(SUFFIX)} was made with another version of it"
        yield Finding("age", entry["path"], what, "note")


def inventory(folder: Folder) -> Iterator[Finding]:
    """Against the last audit: files without a manifest of their own (logs, timings) are covered by its inventory."""
    known: dict[str, str] = folder.record.get("inventory", {})
    if not known:
        return
    for name, sha256 in known.items():
        if _elsewhere(folder, name):
            continue
        if name not in folder.files:
            if name not in folder.left_out:
                yield Finding("inventory", name, f"missing; the audit of {folder.record['time']} saw it")
        elif folder.sha256(name) != sha256:
            yield Finding("inventory", name, f"changed since the audit of {folder.record['time']}")
    vouched = mentioned(folder)
    for name in folder.files:
        if name not in known and name not in OUTSIDE_INVENTORY and name not in vouched:
            yield Finding("inventory", name, "new since the last audit, and no manifest knows it", "note")


def own_files(folder: Folder) -> Iterator[Finding]:
    """The last audit's own two files."""
    manifest = f"audit/audit{SUFFIX}"
    if manifest not in folder.files:
        return
    from lmu_scaling.errors import UserError
    from lmu_scaling.manifests import read_sealed

    try:
        own = read_sealed(folder.files[manifest])
    except UserError as error:
        yield Finding("seals", manifest, error.what)
        return
    for entries in own["outputs"].values():
        for entry in entries:
            name = folder.name_of(entry, manifest)
            if name in folder.files and folder.sha256(name) != entry["sha256"]:
                yield Finding("outputs", name, f"changed after it was written ({manifest} has its checksum)")


def mentioned(folder: Folder) -> set[str]:
    """Files whose checksum some manifest holds, and the manifests themselves, which are sealed."""
    found = set(folder.manifests)
    for group in ("outputs", "inputs"):
        found |= {name for manifest, entry in _entries(folder, group) if (name := folder.name_of(entry, manifest))}
    return found | set(shards(folder))


def shards(folder: Folder) -> dict[str, dict[str, Any]]:
    """Token shards have their checksums in the data manifest."""
    data = folder.json("tokens/manifest.json")
    return {f"tokens/{shard['file']}": shard for shard in data["shards"]} if data else {}


def uncovered(folder: Folder) -> list[str]:
    """Files that nothing vouches for."""
    covered = mentioned(folder) | set(folder.record.get("inventory", {})) | {BUNDLE, *OWN}
    return [name for name in folder.files if name not in covered]


def temporary(folder: Folder) -> set[str]:
    """Files that the workflow deletes once they are used; their manifests stay."""
    return {
        name
        for manifest, entry in _entries(folder, "outputs")
        if (name := folder.name_of(entry, manifest)) and name.startswith("corpus/parts/") and not name.endswith(".json")
    }


def _entries(folder: Folder, group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest, content in folder.manifests.items():
        for entries in content.get(group, {}).values():
            for entry in entries:
                yield manifest, entry


def _elsewhere(folder: Folder, name: str) -> bool:
    """Figures were not copied along: nothing can be said about them."""
    return name.startswith(f"{FIGURES}/") and folder.figures is None
