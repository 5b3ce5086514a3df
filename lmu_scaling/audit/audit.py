"""The job `audit`: verify a results folder. Reads only, needs no Snakemake, and works on a copy anywhere.

There are three outcomes. A mismatch fails the audit. If something was not seen (left out, of another environment, made
by other code), the verdict is "partly checked", with the list; else the results are sound. `audit.json` holds an
inventory of all files, so that the next audit also covers files without a manifest, such as logs.
"""

from __future__ import annotations

import difflib
import functools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from lmu_scaling.audit import checksums, completeness, consistency, recompute, replay, staleness
from lmu_scaling.audit.archive import unpacked
from lmu_scaling.audit.rendering import markdown, summary
from lmu_scaling.audit.results_folder import (
    FAILED,
    FIGURES,
    OUTSIDE_INVENTORY,
    Finding,
    ResultsFolder,
    default_figures,
)
from lmu_scaling.audit.retokenize import retokenized
from lmu_scaling.errors import AuditError, ConfigError, UserError
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.manifests import utc, write_sealed
from lmu_scaling.runtime import atomic_write, canonical_json, sha256_bytes

FORMAT = 3
SOUND, PARTLY, MISMATCH = "sound", "partly checked", "mismatch"
# Name, what holds if the check passes, and the check.
Check = tuple[str, str, Callable[[ResultsFolder], Iterator[Finding]]]


def checks(sample: int, full: bool, retrain: Collection[str], tokens: bool) -> list[Check]:
    losses = functools.partial(recompute.losses, sample=sample)
    replays = functools.partial(replay.replays, full=full, retrain=retrain)
    again = "every evaluation, table, fit, verdict and figure" if full else "every table, fit and verdict"
    return [
        ("complete", "every part of the experiment is here", completeness.complete),
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
        ("replay", f"{again}, made again from its inputs, is the same", replays),
        *[("retokenize", "corpus and tokens, made again from the source, are the same", retokenized)] * tokens,
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
    full: bool = False,
    retrain: list[str] = [],  # noqa: B006  (not changed)
    retokenize: bool = False,
) -> dict[str, Any]:
    """Verify a results folder and make its tables and verdicts again; fails on any mismatch.

    Args:
        results: folder results/<experiment>, made here or copied from elsewhere, or a bundle (.crate.zip)
        figures: folder paper_figures; default: the one beside results/
        out_json: audit.json
        out_md: audit.md
        sample: number of evaluations to recompute from the weights by independent code
        full: also make every evaluation, figure and the report again from weights and tokens
        retrain: runs to train again from their specs, which takes as long as it took
        retokenize: also make corpus and tokens again from the source, which must be here, or is downloaded
    """
    if sample < 0:
        raise ConfigError(f"sample cannot be {sample}", "--sample", "give a number of evaluations, or 0 for none")
    with unpacked(results) as home:
        _check_runs(home, retrain)
        record = examine(ResultsFolder(home, figures or default_figures(home)), sample, full, retrain, retokenize)
    if out_json is not None:  # its inventory will cover files without a manifest
        record["uncovered"] = [name for name in record["uncovered"] if name not in record["inventory"]]
    print(summary(record), flush=True)
    failed = out_md.with_name(Path(FAILED).name) if out_md is not None else None
    if record["verdict"] == MISMATCH:
        if failed is not None:  # the earlier inventory stays: the next audit compares with it
            _write(failed, markdown(record))
        first = record["mismatches"][0]
        raise AuditError(
            f"{_count(record['mismatches'])}, the first: {first['where']}: {first['what']}",
            str(failed or results),
            _remedy(first, results),
        )
    if out_md is not None:
        _write(out_md, markdown(record))
    if failed is not None:
        failed.unlink(missing_ok=True)
    if out_json is not None:
        write_sealed(out_json, record)
    return {"root": record["root"], "files": record["files"], "verdict": record["verdict"]}


def _check_runs(results: Path, runs: list[str]) -> None:
    known = sorted(path.name for path in results.glob("training/*") if (path / "spec.json").is_file())
    for run in runs:
        if run not in known:
            near = difflib.get_close_matches(run, known, n=3, cutoff=0.0)
            what = f"give the name of a run, such as {', '.join(near)}" if near else "name another folder"
            raise AuditError(f"there is no run {run!r}", str(results / "training"), what)


def _count(found: list[dict[str, str]]) -> str:
    return f"{len(found)} mismatch{'es' * (len(found) > 1)}"


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text)


def _remedy(finding: dict[str, str], results: Path) -> str:
    """The command that makes a file again, as Snakemake names it; no job makes a link."""
    where = finding["where"]
    if finding["check"] == "links":
        return "remove the link, or put the file itself in its place"
    name = where if where.startswith(f"{FIGURES}/") else f"results/{results.resolve().name}/{where}"
    return f"restore the file from a copy, or make it again: snakemake --cores all --forcerun {name}"


def examine(
    folder: ResultsFolder, sample: int = 1, full: bool = False, retrain: Collection[str] = (), retokenize: bool = False
) -> dict[str, Any]:
    """Run all checks; return the outcome as JSON."""
    done, findings = [], []
    for name, description, check in checks(sample, full, retrain, retokenize):
        found = _collect(name, check, folder)
        findings += found
        done.append({"name": name, "description": description} | _counts(found))
    findings = list(dict.fromkeys([*folder.problems, *findings]))
    inventory = {name: folder.sha256(name) for name in folder.files if name not in OUTSIDE_INVENTORY}
    levels = {finding.level for finding in findings}
    return {
        "format": FORMAT,
        "experiment": folder.experiment,
        "time": utc(time.time()),
        "verdict": MISMATCH if "mismatch" in levels else PARTLY if "unseen" in levels else SOUND,
        "mode": "full" if full else "default",
        "files": len(inventory),
        "bytes": sum(folder.files[name].stat().st_size for name in inventory),
        "manifests": len(folder.manifests),
        "runs": len(consistency.run_names(folder)),
        "checks": done,
        "mismatches": [_as_json(f) for f in findings if f.level == "mismatch"],
        "unseen": [_as_json(f) for f in findings if f.level == "unseen"],
        "notes": [_as_json(f) for f in findings if f.level == "note"],
        "on_trust": completeness.trusted(
            folder, list(retrain), retokenize and not _unseen(findings, "retokenize"), full
        ),
        "uncovered": checksums.uncovered(folder),
        "inventory": inventory,
        "root": sha256_bytes(canonical_json(inventory).encode()),
    }


def _unseen(findings: list[Finding], check: str) -> bool:
    return any(finding.check == check and finding.level == "unseen" for finding in findings)


def _counts(found: list[Finding]) -> dict[str, int]:
    levels = Counter(finding.level for finding in found)
    return {"mismatches": levels["mismatch"], "unseen": levels["unseen"], "notes": levels["note"]}


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
