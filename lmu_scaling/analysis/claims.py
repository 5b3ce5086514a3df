"""A verdict on each of the paper's claims C1–C12, computed from the tables by written rules (docs/claims.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.rules import VERDICTS, sentence
from lmu_scaling.analysis.table import read_table
from lmu_scaling.analysis.verdicts import Evidence, Finding, judge
from lmu_scaling.errors import ResultsError
from lmu_scaling.runtime import atomic_write, read_json, write_json


def claims(
    table: Path,
    fits: Path,
    multipliers: Path,
    per_token_fits: Path,
    slopes: Path,
    counts: Path,
    table2: Path,
    paper: Path,
    settings: Any,
    out_json: Path,
    out_csv: Path,
    out_md: Path,
) -> dict[str, Any]:
    """Write the verdicts three times: for programs, for spreadsheets, for people."""
    evidence = Evidence(
        runs=read_table(table),
        fits=read_json(fits),
        multipliers=_csv(multipliers),
        per_token=_csv(per_token_fits),
        slopes=_csv(slopes),
        counts=_csv(counts),
        table2=_csv(table2),
        paper=load_paper(paper),
    )
    entries = [entry(name, finding, evidence) for name, finding in judge(evidence).items()]
    write_json(out_json, entries)
    frame = pd.DataFrame(entries)
    frame["evidence"] = frame["evidence"].map("; ".join)
    with atomic_write(out_csv) as file:
        frame.to_csv(file, index=False)
    with atomic_write(out_md) as file:
        file.write(markdown(entries, evidence, settings.confidence))
    return {verdict: sum(e["verdict"] == verdict for e in entries) for verdict in VERDICTS}


def entry(name: str, finding: Finding, evidence: Evidence) -> dict[str, Any]:
    claim = evidence.paper["claims"][name]
    return {
        "id": name,
        "claim": claim["text"],
        "place": claim["place"],
        "paper": claim["value"],
        "ours": finding.ours,
        "value": finding.value,
        "low": finding.low,
        "high": finding.high,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "rule": sentence(name),
        "evidence": list(finding.evidence),
    }


def markdown(entries: list[dict[str, Any]], evidence: Evidence, confidence: float) -> str:
    runs = evidence.runs
    n, tokens = runs["n_exact"], runs["tokens"]
    head = (
        f"# Verdicts on the paper's claims\n\n"
        f"{len(runs)} runs of {runs['variant'].nunique()} variants, N = {n.min():,} … {n.max():,}, "
        f"{tokens.min():,} … {tokens.max():,} tokens, corpus `{runs['corpus'].iloc[0]}`, vocabulary "
        f"{runs['vocab'].iloc[0]:,}, context {runs['context'].iloc[0]:,}. Intervals are {100 * confidence:.6g}%.\n\n"
        "| claim | the paper | ours | interval | verdict |\n|---|---|---|---|---|\n"
    )
    rows = "".join(
        f"| {e['id']} {e['claim']} ({e['place']}) | {e['paper']} | {e['ours']} | {_interval(e)} "
        f"| **{e['verdict']}** |\n"
        for e in entries
    )
    details = "".join(
        f"\n## {e['id']}: {e['verdict']}\n\n{e['reason']}\n\nRule: {e['rule']}\n\n"
        f"Evidence: {', '.join(e['evidence'])}\n"
        for e in entries
    )
    notes = evidence.fits.get("notes", [])
    told = "\n## Notes on the runs\n\n" + "".join(f"* {note}\n" for note in notes) if notes else ""
    return head + rows + details + told


def _interval(e: dict[str, Any]) -> str:
    if e["low"] is None:
        return "–"
    return f"{e['low']:.4g} … {'∞' if e['high'] is None else format(e['high'], '.4g')}"


def _csv(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, dtype={"size": str})
    except (OSError, ValueError) as error:
        raise ResultsError(f"cannot read a table: {error}", str(path), "run the workflow again") from error
