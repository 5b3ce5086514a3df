"""A verdict on each claim of the paper, computed from the tables by the rules of the claim modules (docs/claims.md)."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lmu_scaling.analysis.claims import claim_modules
from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Gates, Support, Verdict, fill
from lmu_scaling.analysis.claims.conditions import name
from lmu_scaling.analysis.comparisons import BASELINES
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import SENSITIVITY, read_frame, read_table, write_csv
from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Input, Output, job
from lmu_scaling.paths import PAPER
from lmu_scaling.runtime import atomic_write, read_json, write_json


def load_claims() -> list[Claim]:
    """All claims, in the order of their files."""
    return [importlib.import_module(name).CLAIM for name in claim_modules()]


@dataclass(frozen=True)
class Judged:
    """A claim, judged against one baseline; its id ends in a letter if that is not the paper's (`BASELINES`)."""

    id: str
    claim: Claim
    finding: Finding
    baseline: str


def judge_each(evidence: Evidence) -> list[Judged]:
    """Every claim, and those about transformers once more against each other one that was trained."""
    found = []
    for claim in load_claims():
        found.append(Judged(claim.id, claim, claim.judge(evidence), claim.baseline))
        for id, baseline in _others(claim, evidence).items():
            assert claim.against is not None
            found.append(Judged(id, claim, claim.against(evidence, baseline), baseline))
    return found


def _others(claim: Claim, evidence: Evidence) -> dict[str, str]:
    """Further baselines of a claim, by the id of the verdict against each."""
    if claim.against is None:
        return {}
    others = {baseline: suffix for baseline, suffix in BASELINES.items() if baseline != claim.baseline}
    return {f"{claim.id}{suffix}": baseline for baseline, suffix in others.items() if evidence.trained(baseline)}


def all_gates(evidence: Evidence) -> dict[str, Gates]:
    """What these runs lack for a verdict on each claim that needs training; `evidence` needs no results but runs."""
    found = {}
    for claim in load_claims():
        if claim.gates is not None:
            found[claim.id] = claim.gates(evidence, claim.baseline)
            for id, baseline in _others(claim, evidence).items():
                found[id] = claim.gates(evidence, baseline)
    return found


def judge_all(evidence: Evidence) -> dict[str, Finding]:
    """A finding for every claim, by id."""
    return {judged.id: judged.finding for judged in judge_each(evidence)}


@job
def claims(
    table: Input,
    fits: Input,
    multipliers: Input,
    per_token_fits: Input,
    sensitivity: Input,
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
        sensitivity: sensitivity.csv
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
        sensitivity=read_frame(sensitivity, SENSITIVITY),
        slopes=read_frame(slopes),
        counts=read_frame(counts),
        table2=read_frame(table2),
        paper=load_paper(paper),
    )
    entries = [_entry(judged, evidence) for judged in judge_each(evidence)]
    if len({entry["id"] for entry in entries}) < len(entries):
        raise ResultsError("two claims have the same id", "lmu_scaling/analysis/claims", "give each file its own")
    write_json(out_json, entries)
    frame = pd.DataFrame(entries)
    frame["evidence"] = frame["evidence"].map("; ".join)
    write_csv(out_csv, frame)
    with atomic_write(out_md) as file:
        file.write(_markdown(entries, evidence, confidence))
    return {
        "direct": {verdict: sum(e["verdict"] == verdict for e in entries) for verdict in Verdict},
        "conceptual": {verdict: sum(e["conceptual"] == verdict for e in entries) for verdict in Support},
    }


def _entry(judged: Judged, evidence: Evidence) -> dict[str, Any]:
    claim, finding, paper = judged.claim, judged.finding, evidence.paper
    return {
        "id": judged.id,
        "claim": claim.text,
        "place": claim.place,
        "baseline": name(evidence, judged.baseline) if judged.baseline else "",
        "paper": fill(claim.printed, paper),
        "ours": finding.ours,
        "value": finding.value,
        "low": finding.low,
        "high": finding.high,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "conceptual": finding.concept.verdict,
        "conceptual_reason": finding.concept.reason,
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
        "*Direct*: at the paper's scale. *Conceptual*: the same qualitative claim under the conditions of this "
        "experiment; it is never a reproduction.\n\n"
        "| claim | against | the paper | ours | interval | direct | conceptual |\n|---|---|---|---|---|---|---|\n"
    )
    rows = "".join(
        f"| {e['id']} {e['claim']} ({e['place']}) | {e['baseline'] or '–'} | {e['paper']} | {e['ours']} "
        f"| {_interval(e)} | **{e['verdict']}** | **{e['conceptual']}** |\n"
        for e in entries
    )
    details = "".join(
        f"\n## {e['id']}: {e['verdict']}; {e['conceptual']}\n\nDirect: {e['reason']}\n\n"
        f"Conceptual: {e['conceptual_reason']}\n\nRule: {e['rule']}\n\nEvidence: {', '.join(e['evidence'])}\n"
        for e in entries
    )
    notes = evidence.fits.get("notes", [])
    remarks = "\n## Notes on the runs\n\n" + "".join(f"* {note}\n" for note in notes) if notes else ""
    return head + rows + details + remarks


def _interval(e: dict[str, Any]) -> str:
    if e["low"] is None:
        return "–"
    return f"{e['low']:.4g} … {'∞' if e['high'] is None else format(e['high'], '.4g')}"
