"""C3 and C4: is the loss of one variant lower than that of another, at equal N and tokens?"""

from __future__ import annotations

from functools import partial
from typing import Any

from lmu_scaling.analysis.claims.common import AT_SCALE, Claim, Evidence, Finding, Verdict, find, missing_scale


def judge(evidence: Evidence, better: str, worse: str) -> Finding:
    """Is loss(worse) - loss(better) positive?"""
    entry = _comparison(evidence.fits["comparisons"], better, worse)
    if entry is None:
        return Finding(Verdict.NOT_TESTABLE, f"{better} and {worse} share no size")
    low, high, value = entry["low"], entry["high"], entry["difference"]
    if low > 0 and all(size["difference"] > 0 for size in entry["per_size"]):
        outcome, detail = Verdict.REPRODUCED, f"{better} is better at every size"
    elif high < 0:
        outcome, detail = Verdict.NOT_REPRODUCED, f"{better} is worse than {worse}"
    else:
        outcome, detail = (
            Verdict.INCONCLUSIVE,
            "the difference is indistinguishable from zero, or changes sign between sizes",
        )
    detail += f" ({value:+.3f} nats at N = {entry['n']:,.0f})."
    return Finding(outcome, detail, f"{value:+.3f} nats", value, low, high, missing_scale(evidence, better, worse))


def _comparison(entries: list[dict[str, Any]], better: str, worse: str) -> dict[str, Any] | None:
    """loss(worse) - loss(better), in whichever order it was written."""
    entry = find(entries, a=better, b=worse)
    if entry is not None:
        return entry
    entry = find(entries, a=worse, b=better)
    return None if entry is None else _negated(entry)


def _negated(entry: dict[str, Any]) -> dict[str, Any]:
    negated = entry | {"difference": -entry["difference"], "low": -entry["high"], "high": -entry["low"]}
    if "per_size" in entry:
        negated["per_size"] = [_negated(size) for size in entry["per_size"]]
    return negated


def claim(id: str, text: str, place: str, better: str, worse: str) -> Claim:
    return Claim(
        id=id,
        text=text,
        place=place,
        printed="lower at every N",
        statistic=f"loss of {worse} − loss of {better}, at the geometric-mean N and at every size",
        needs=AT_SCALE,
        decision="Reproduced if the interval of the difference lies above 0 at the geometric-mean N and the estimate "
        "is positive at every size; not reproduced if the interval lies below 0; else inconclusive.",
        bounds="0: the claim is about the sign",
        files=("analysis/fits.json", "analysis/runs.csv"),
        judge=partial(judge, better=better, worse=worse),
    )
