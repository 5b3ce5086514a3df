"""The verb `audit`: verify a results folder, read-only, without Snakemake, wherever it was copied.

A mismatch fails the audit; a note does not. `audit.json` keeps the inventory of all files, so that a later audit also
covers what has no manifest of its own, such as logs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lmu_scaling.audit import age, checksums, meaning, recompute
from lmu_scaling.audit.folder import OUTSIDE_INVENTORY, Finding, Folder, default_figures
from lmu_scaling.audit.words import markdown, summary
from lmu_scaling.errors import AuditError, UserError
from lmu_scaling.manifests import utc, write_sealed
from lmu_scaling.runtime import atomic_write, canonical_json, sha256_bytes

FORMAT = 1
# Name, what it says when it passes, and the check.
Check = tuple[str, str, Callable[[Folder], Iterator[Finding]]]


def checks(sample: int) -> list[Check]:
    evaluation = functools.partial(recompute.evaluation, sample=sample)
    return [
        ("outputs", "every product has the checksum it was written with", checksums.outputs),
        ("inputs", "every figure, table and run was made from the inputs that are here", checksums.inputs),
        ("inventory", "nothing changed since the last audit", checksums.inventory),
        ("audit", "the last audit's own files are unchanged", checksums.own_files),
        ("data", "token shards match their manifest", meaning.data),
        ("runs", "every run matches its spec, and every spec the configuration", meaning.runs),
        ("evaluations", "every summary is the mean of its sequences", meaning.evaluations),
        ("tables", "the table of runs follows from results and evaluations", meaning.tables),
        ("evaluation", "a loss was recomputed from weights and tokens", evaluation),
        ("law", "every power law was refitted from the table", recompute.law),
        ("code", "all was made by this code", age.code),
        ("environment", "all was made in one environment", age.environments),
    ]


def audit(
    results: Path,
    figures: Path | None = None,
    out_json: Path | None = None,
    out_md: Path | None = None,
    sample: int = 1,
) -> dict[str, Any]:
    """Verify `results`; print a summary; raise AuditError on any mismatch."""
    folder = Folder(Path(results), Path(figures) if figures else default_figures(Path(results)))
    record = examine(folder, sample)
    if out_json is not None:  # from now on its inventory vouches for what has no manifest
        record["uncovered"] = [name for name in record["uncovered"] if name not in record["inventory"]]
    print(summary(record), flush=True)
    if record["mismatches"]:
        first = record["mismatches"][0]
        raise AuditError(
            f"{len(record['mismatches'])} mismatch(es), the first one: {first['where']}: {first['what']}",
            str(results),
            "restore the file from a copy, or delete it and run the workflow again: it makes what is missing",
        )
    if out_md is not None:
        with atomic_write(out_md) as file:
            file.write(markdown(record))
    if out_json is not None:
        write_sealed(out_json, record)
    return {"root": record["root"], "files": record["files"], "notes": len(record["notes"])}


def examine(folder: Folder, sample: int = 1) -> dict[str, Any]:
    """All checks; the whole outcome as JSON."""
    done, findings = [], []
    for name, promise, check in checks(sample):
        found = _collect(name, check, folder)
        findings += found
        failed = sum(finding.level == "mismatch" for finding in found)
        done.append({"name": name, "promise": promise, "mismatches": failed, "notes": len(found) - failed})
    findings = list(dict.fromkeys([*folder.problems, *findings]))
    inventory = {name: folder.sha256(name) for name in folder.files if name not in OUTSIDE_INVENTORY}
    return {
        "format": FORMAT,
        "experiment": folder.experiment,
        "time": utc(time.time()),
        "verdict": "mismatch" if any(f.level == "mismatch" for f in findings) else "sound",
        "files": len(inventory),
        "bytes": sum(folder.files[name].stat().st_size for name in inventory),
        "manifests": len(folder.manifests),
        "runs": len(meaning.run_names(folder)),
        "figures": str(folder.figures is not None),
        "checks": done,
        "mismatches": [_plain(f) for f in findings if f.level == "mismatch"],
        "notes": [_plain(f) for f in findings if f.level == "note"],
        "uncovered": checksums.uncovered(folder),
        "inventory": inventory,
        "root": sha256_bytes(canonical_json(inventory).encode()),
    }


def _collect(name: str, check: Callable[[Folder], Iterator[Finding]], folder: Folder) -> list[Finding]:
    """A damaged file can break a check in any way; that too is a mismatch, and the other checks go on."""
    found: list[Finding] = []
    try:
        for finding in check(folder):
            found.append(finding)
    except AuditError:  # the folder cannot be read at all
        raise
    except Exception as error:
        reason = error.what if isinstance(error, UserError) else str(error)
        found.append(Finding(name, "results", f"this check broke off: {type(error).__name__}: {reason}"))
    return found


def _plain(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "where": finding.where, "what": finding.what}
