"""Content decides what is computed: a job whose manifest still holds is not repeated, and a damaged input is not used.

Snakemake decides by modification times and its own records which jobs to start. Here a job that was started looks at
the manifest of its last run: if the command, the code, the inputs and the outputs are still the same, byte by byte,
there is nothing to do. The rules of expensive jobs mark their outputs with `update()`, so that Snakemake leaves them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ResultsError, UserError
from lmu_scaling.manifests import SUFFIX, absolute, find, read_sealed, utc, write_sealed
from lmu_scaling.redaction import redact_json
from lmu_scaling.runtime import canonical_json, sha256_bytes, sha256_file

AFFECTS_RESULTS = False
# How to compute, not what: a change repeats nothing.
HOW = {"--device", "--precision", "--threads", "--micro-batch", "--compile", "--checkpoint-seconds", "--no-wait"}
ALWAYS = {"fetch", "plan"}  # they depend on files that are no inputs: the user's own text, what is done already
HOW |= {"--code", "--manifest", "--read", "--wrote"}  # the code is compared by itself


def is_current(manifest: Path, words: Sequence[str], code: str) -> bool:
    """True if the job of this manifest had the same command and code, and no file that it read or wrote has changed."""
    if not manifest.is_file() or words[0] in ALWAYS:
        return False
    try:
        made = read_sealed(manifest)
        same = made["code"] == code and settings(made["command"][3:]) == settings(redact_json(list(words)))
        return same and all(_holds(entry, manifest) for entry in _entries(made))
    except (UserError, OSError, KeyError, TypeError, AttributeError):
        return False


def key(words: Sequence[str], code: str) -> str:
    """The same for two jobs that make the same from the same inputs."""
    return sha256_bytes(canonical_json([settings(words), code]).encode())[:16]


def confirm(manifest: Path) -> None:
    """Note in a manifest that its job was asked for again and had nothing to do: its log and its timing are new."""
    write_sealed(manifest, {**read_sealed(manifest), "confirmed": utc(time.time())})


def settings(words: Sequence[str]) -> list[str]:
    """The words of a command without the flags that say how to compute, and their values."""
    kept, skipping = [], False
    for word in words:
        if word.startswith("--"):
            skipping = word in HOW
        if not skipping:
            kept.append(word)
    return kept


def _entries(made: dict[str, Any]) -> list[dict[str, Any]]:
    found = [entry for group in ("inputs", "outputs") for entries in made[group].values() for entry in entries]
    if not made["outputs"]:
        raise KeyError("a manifest without outputs vouches for nothing")
    return found


def _holds(entry: dict[str, Any], manifest: Path) -> bool:
    path = find(entry, manifest)
    return path is not None and path.is_file() and sha256_file(path) == entry["sha256"]


def clear(outputs: Sequence[Path]) -> None:
    """Remove the outputs of an earlier run of this job, so that none of them can pass for a new one."""
    for path in outputs:
        path.unlink(missing_ok=True)


def verified(inputs: Sequence[Path]) -> dict[str, str]:
    """The sha256 of each input; raise ResultsError if one is not as the job wrote it that made it."""
    recorded: dict[Path, dict[Path, str]] = {}
    found = {}
    for path in inputs:
        if not path.is_file():
            continue  # the job says what is missing
        folder = absolute(path).parent
        if folder not in recorded:
            recorded[folder] = outputs_of(folder)
        seen = found[str(path)] = sha256_file(path)
        wanted = recorded[folder].get(absolute(path), seen)
        if seen != wanted:
            raise ResultsError(
                f"this file is not as its job wrote it: sha256 {seen[:16]}… instead of {wanted[:16]}…",
                str(path),
                f"restore it from a copy, or make it again: snakemake --cores all --forcerun {path}",
            )
    return found


def outputs_of(folder: Path) -> dict[Path, str]:
    """The sha256 of each file that a valid manifest in this folder lists as an output."""
    found: dict[Path, str] = {}
    for manifest in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            made = read_sealed(manifest)
        except UserError:
            continue  # the next start of the workflow makes it again
        for entries in made["outputs"].values():
            found |= {path: entry["sha256"] for entry in entries if (path := find(entry, manifest)) is not None}
    return found
