"""A verdict on each claim of the paper, computed from the tables by the rules of the claim modules (docs/claims.md)."""

from __future__ import annotations

import importlib
from typing import Any

import pandas as pd

from lmu_scaling.analysis.claims import claim_modules
from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Verdict, fill
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import read_frame, read_table, write_csv
from lmu_scaling.jobs import Input, Output, job
from lmu_scaling.paths import PAPER
from lmu_scaling.runtime import atomic_write, read_json, write_json


def load_claims() -> list[Claim]:
    """All claims, in the order of their files."""
    return [importlib.import_module(name).CLAIM for name in claim_modules()]


def judge_all(evidence: Evidence) -> dict[str, Finding]:
    """A finding for every claim, by id."""
    return {claim.id: claim.judge(evidence) for claim in load_claims()}


@job
def claims(
    table: Input,
    fits: Input,
    multipliers: Input,
    per_token_fits: Input,
    slopes: Input,
    counts: Input,
    table2: Input,
    confidence: float,
    out_json: Output,
    out_csv: Output,
    out_md: Output,
    paper: Input = PAPER,
) -> dict[str, Any]:
    """Judge every claim of the paper.

    Args:
        table: runs.csv
        fits: fits.json
        multipliers: multipliers.csv
        per_token_fits: per_token_fits.csv
        slopes: complexity_slopes.csv
        counts: counts.csv
        table2: table2.csv
        confidence: of the intervals
        out_json: claims.json
        out_csv: claims.csv
        out_md: claims.md
        paper: catalogue of the numbers the paper prints
    """
    evidence = Evidence(
        runs=read_table(table),
        fits=read_json(fits),
        multipliers=read_frame(multipliers),
        per_token=read_frame(per_token_fits),
        slopes=read_frame(slopes),
        counts=read_frame(counts),
        table2=read_frame(table2),
        paper=load_paper(paper),
    )
    findings = judge_all(evidence).values()  # one fewer than claims if two have the same id, which `strict` refuses
    entries = [_entry(c, finding, evidence.paper) for c, finding in zip(load_claims(), findings, strict=True)]
    write_json(out_json, entries)
    frame = pd.DataFrame(entries)
    frame["evidence"] = frame["evidence"].map("; ".join)
    write_csv(out_csv, frame)
    with atomic_write(out_md) as file:
        file.write(_markdown(entries, evidence, confidence))
    return {verdict: sum(e["verdict"] == verdict for e in entries) for verdict in Verdict}


def _entry(claim: Claim, finding: Finding, paper: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": claim.id,
        "claim": claim.text,
        "place": claim.place,
        "paper": fill(claim.printed, paper),
        "ours": finding.ours,
        "value": finding.value,
        "low": finding.low,
        "high": finding.high,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "rule": claim.rule(paper),
        "evidence": list(claim.files),
    }


def _markdown(entries: list[dict[str, Any]], evidence: Evidence, confidence: float) -> str:
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
    remarks = "\n## Notes on the runs\n\n" + "".join(f"* {note}\n" for note in notes) if notes else ""
    return head + rows + details + remarks


def _interval(e: dict[str, Any]) -> str:
    if e["low"] is None:
        return "–"
    return f"{e['low']:.4g} … {'∞' if e['high'] is None else format(e['high'], '.4g')}"
