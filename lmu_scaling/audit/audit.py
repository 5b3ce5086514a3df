"""The job `audit`: verify a results folder. Reads only, needs no Snakemake, and works on a copy anywhere.

A mismatch fails the audit; a note does not. `audit.json` holds an inventory of all files, so that the next audit also
covers files without a manifest, such as logs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from lmu_scaling.audit import checksums, consistency, recompute, staleness
from lmu_scaling.audit.rendering import markdown, summary
from lmu_scaling.audit.results_folder import OUTSIDE_INVENTORY, Finding, ResultsFolder, default_figures
from lmu_scaling.errors import AuditError, UserError
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.manifests import utc, write_sealed
from lmu_scaling.runtime import atomic_write, canonical_json, sha256_bytes

FORMAT = 2
# Name, what holds if the check passes, and the check.
Check = tuple[str, str, Callable[[ResultsFolder], Iterator[Finding]]]


def checks(sample: int) -> list[Check]:
    losses = functools.partial(recompute.losses, sample=sample)
    return [
        ("outputs", "every output has the checksum that its job recorded", checksums.outputs),
        ("inputs", "every figure, table and run was made from the present version of its inputs", checksums.inputs),
        ("inventory", "no file changed since the last audit", checksums.inventory),
        ("audit", "the files of the last audit are unchanged", checksums.audit_files),
        ("data", "token shards match their manifest", consistency.data),
        ("runs", "every run matches its spec, and every spec the configuration", consistency.runs),
        ("evaluations", "every summary is the mean over its sequences", consistency.evaluations),
        ("tables", "the table of runs agrees with results and evaluations", consistency.tables),
        ("losses", "a sample of losses, recomputed from weights and tokens, agrees", losses),
        ("laws", "every power law, refitted from the table, agrees", recompute.power_laws),
        ("code", "all outputs were made by the present code", staleness.code),
        ("environment", "all outputs were made in one environment", staleness.environments),
    ]


@job
def audit(
    results: Folder,
    /,
    figures: Folder | None = None,
    out_json: Output | None = None,
    out_md: Output | None = None,
    sample: int = 1,
) -> dict[str, Any]:
    """Verify a results folder and recompute a sample; fails on any mismatch.

    Args:
        results: folder results/<experiment>, made here or copied from elsewhere
        figures: folder paper_figures; default: the one beside results/
        out_json: audit.json
        out_md: audit.md
        sample: number of evaluations to recompute from the weights
    """
    folder = ResultsFolder(results, figures or default_figures(results))
    record = examine(folder, sample)
    if out_json is not None:  # its inventory will cover files without a manifest
        record["uncovered"] = [name for name in record["uncovered"] if name not in record["inventory"]]
    print(summary(record), flush=True)
    if record["mismatches"]:
        first = record["mismatches"][0]
        raise AuditError(
            f"{len(record['mismatches'])} mismatch(es), the first: {first['where']}: {first['what']}",
            str(results),
            "restore the file from a copy, or delete it and run the workflow again, which makes missing files",
        )
    if out_md is not None:
        with atomic_write(out_md) as file:
            file.write(markdown(record))
    if out_json is not None:
        write_sealed(out_json, record)
    return {"root": record["root"], "files": record["files"], "notes": len(record["notes"])}


def examine(folder: ResultsFolder, sample: int = 1) -> dict[str, Any]:
    """Run all checks; return the outcome as JSON."""
    done, findings = [], []
    for name, description, check in checks(sample):
        found = _collect(name, check, folder)
        findings += found
        failed = sum(finding.level == "mismatch" for finding in found)
        done.append({"name": name, "description": description, "mismatches": failed, "notes": len(found) - failed})
    findings = list(dict.fromkeys([*folder.problems, *findings]))
    inventory = {name: folder.sha256(name) for name in folder.files if name not in OUTSIDE_INVENTORY}
    return {
        "format": FORMAT,
        "experiment": folder.experiment,
        "time": utc(time.time()),
        "verdict": "failed" if any(f.level == "mismatch" for f in findings) else "passed",
        "files": len(inventory),
        "bytes": sum(folder.files[name].stat().st_size for name in inventory),
        "manifests": len(folder.manifests),
        "runs": len(consistency.run_names(folder)),
        "checks": done,
        "mismatches": [_as_json(f) for f in findings if f.level == "mismatch"],
        "notes": [_as_json(f) for f in findings if f.level == "note"],
        "uncovered": checksums.uncovered(folder),
        "inventory": inventory,
        "root": sha256_bytes(canonical_json(inventory).encode()),
    }


def _collect(name: str, check: Callable[[ResultsFolder], Iterator[Finding]], folder: ResultsFolder) -> list[Finding]:
    """Run one check. If a damaged file makes it raise, that is a mismatch too, and the other checks still run."""
    found: list[Finding] = []
    try:
        for finding in check(folder):
            found.append(finding)
    except AuditError:  # a file cannot be read
        raise
    except Exception as error:
        reason = error.what if isinstance(error, UserError) else str(error)
        found.append(Finding(name, "results", f"this check failed to run: {type(error).__name__}: {reason}"))
    return found


def _as_json(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "where": finding.where, "what": finding.what}
