"""Snakemake's memory of an experiment, kept with its results, so that a copy of the results is as finished as they are.

Snakemake remembers in `.snakemake/metadata` with which settings, code and inputs each file was made. A copy of
`results/`, or an unpacked bundle, comes without that folder, and Snakemake would go by modification times. `save` puts
what it needs into `results/<experiment>/snakemake.json`; `restore` gives it back where it is missing. A record is only
given back while the manifest beside the file is the one that the record was saved with.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lmu_scaling.errors import UserError
from lmu_scaling.manifests import render
from lmu_scaling.runtime import atomic_write, read_json, sha256_file

AFFECTS_RESULTS = False
METADATA = Path(".snakemake/metadata")
# What Snakemake compares, and the version of its format. Not times, commands and logs, which change nothing.
KEYS = ("record_format_version", "rule", "input", "params", "code", "input_checksums", "incomplete")
Jobs = Iterable[tuple[str, Sequence[str]]]  # manifest and all outputs of each job


def save(path: Path, jobs: Jobs) -> None:
    """Write the records of these jobs to `path`."""
    found = []
    for manifest, outputs in jobs:
        record = _read(_place(manifest))
        if record is not None and Path(manifest).is_file():
            kept = {key: record.get(key) for key in KEYS}
            found.append(
                {"manifest": manifest, "sha256": sha256_file(manifest), "outputs": sorted(outputs), "record": kept}
            )
    if found:
        with atomic_write(path) as file:
            file.write(render({"jobs": found}))


def restore(path: Path) -> int:
    """Give Snakemake the records that it does not have; return their number."""
    try:
        jobs = read_json(path, "jobs")["jobs"] if path.is_file() else []
    except UserError:
        return 0  # damaged: Snakemake goes by modification times
    return sum(_restore(job) for job in jobs)


def _restore(job: dict[str, Any]) -> int:
    manifest, count = Path(job["manifest"]), 0
    wanted = [place for output in job["outputs"] if not (place := _place(output)).exists()]
    if wanted and manifest.is_file() and sha256_file(manifest) == job["sha256"]:
        for place in wanted:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(job["record"]), "utf-8")
            count += 1
    return count


def _place(output: str) -> Path:
    """Where Snakemake keeps the record of a file. Names longer than a file's name may be are not handled."""
    return METADATA / urlsafe_b64encode(output.encode()).decode()


def _read(place: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
