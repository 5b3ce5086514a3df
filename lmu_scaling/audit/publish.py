"""The job `publish`: a finished experiment as a folder for a repository.

It holds a small bundle, without weights and without the losses of single sequences, which
`python -m lmu_scaling audit <experiment>.crate.zip` verifies, and beside it, copied out of the bundle, what people
read: report, verdicts, tables and figures.
"""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from lmu_scaling.audit.bundle import bundle
from lmu_scaling.audit.results_folder import FIGURES
from lmu_scaling.jobs import Folder, job
from lmu_scaling.runtime import atomic_write, byte_size

RESULTS = {  # in results/<experiment> → beside the bundle
    "report.html": "report.html",
    "config.json": "config.json",
    "audit/audit.md": "audit.md",
    "analysis/claims.md": "claims.md",
    "analysis/runs.csv": "runs.csv",
    "analysis/sensitivity.csv": "sensitivity.csv",
    "analysis/fits.json": "fits.json",
    "analysis/multipliers.csv": "multipliers.csv",
    "analysis/frontier.csv": "frontier.csv",
    "analysis/per_token_fits.csv": "per_token_fits.csv",
    "tokens/report.csv": "filters.csv",
    "tokens/overlap.csv": "overlap.csv",
}
FOLDERS = {".png": "figures", ".md": "tables"}  # of paper_figures, by type


@job
def publish(results: Folder, /, to: Folder, figures: Folder | None = None) -> dict[str, Any]:
    """Verify results and lay them out for a repository: a small bundle, report, tables, figures.

    Args:
        results: folder results/<experiment>
        to: the folder to write, e.g. studies/<name>
        figures: folder paper_figures; default: the one beside results/
    """
    out = to / f"{results.resolve().name}.crate.zip"
    packed = bundle(results, out=out, figures=figures, without_weights=True, without_sequences=True)
    copied = copy_out(out, to)
    print(f"{to}: {len(copied)} files beside the bundle, {byte_size(sum(map(_size, copied)))}", flush=True)
    return {"root": packed["root"], "files": len(copied)}


def readable(out: Path) -> dict[str, str]:
    """Name in the bundle → name beside it."""
    with zipfile.ZipFile(out) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
    found = {}
    for name in names:
        inside = PurePosixPath(*name.parts[2:]).as_posix()
        if name.parts[0] == "results" and inside in RESULTS:
            found[name.as_posix()] = RESULTS[inside]
        elif name.parts[0] == FIGURES and name.suffix in FOLDERS:
            found[name.as_posix()] = f"{FOLDERS[name.suffix]}/{name.name}"
    return found


def copy_out(out: Path, to: Path) -> list[Path]:
    copied = []
    with zipfile.ZipFile(out) as archive:
        for name, beside in readable(out).items():
            target = to / beside
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(target, "wb") as file:
                file.write(archive.read(name))
            copied.append(target)
    return copied


def _size(path: Path) -> int:
    return path.stat().st_size
