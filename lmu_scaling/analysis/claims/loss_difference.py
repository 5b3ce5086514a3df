"""C3 and C4: is the loss of one variant lower than that of another, at equal N and tokens?"""

from __future__ import annotations

from functools import partial
from typing import Any

from lmu_scaling.analysis.claims.common import (
    IN_OTHER_WORDS,
    Claim,
    Concept,
    Evidence,
    Finding,
    Gates,
    Support,
    Verdict,
    absent,
    find,
)
from lmu_scaling.analysis.claims.conditions import SAME_SIZES, missing_conditions, name, under_conditions
from lmu_scaling.analysis.claims.nuisance import cells, precisions, unsettled
from lmu_scaling.analysis.claims.scale import AT_SCALE, missing_scale
from lmu_scaling.analysis.comparisons import BASELINES


def judge(evidence: Evidence, worse: str, better: str, beside: tuple[str, ...] = ()) -> Finding:
    """Is loss(worse) - loss(better) positive? `beside`: other baselines that the statement names too."""
    entry = comparison(evidence, better, worse)
    if entry is None:
        return absent(f"{better} and {worse} share no size")
    low, high, value = entry["low"], entry["high"], entry["difference"]
    if low > 0 and all(size["difference"] > 0 for size in entry["per_size"]):
        outcome, detail = Verdict.REPRODUCED, f"{name(evidence, better)} is better at every size"
    elif high < 0:
        outcome, detail = Verdict.NOT_REPRODUCED, f"{name(evidence, better)} is worse than {name(evidence, worse)}"
    else:
        outcome = Verdict.INCONCLUSIVE
        detail = "the difference is indistinguishable from zero, or changes sign between sizes"
    missing = gates(evidence, worse, better)
    concept = _concept(evidence, entry, outcome, beside, missing.conceptual)
    if outcome != Verdict.INCONCLUSIVE and (why := unsettled(evidence, better, worse, value)):
        outcome, detail = Verdict.INCONCLUSIVE, why
    detail += f" ({value:+.3f} nats at N = {entry['n']:,.0f})."
    return Finding(outcome, detail, f"{value:+.3f} nats", value, low, high, missing.direct, concept)


def gates(evidence: Evidence, worse: str, better: str) -> Gates:
    direct = missing_scale(evidence, better, worse) + precisions(cells(evidence, better, worse))
    return Gates(direct, missing_conditions(evidence, better, worse))


def _concept(
    evidence: Evidence, entry: dict[str, Any], outcome: Verdict, beside: tuple[str, ...], missing: tuple[str, ...]
) -> Concept:
    """The same under the experiment's own conditions; the sign must survive every setting that was tried."""
    better, worse = entry["a"], entry["b"]
    clause = f"the loss of {name(evidence, better)} was {_side(entry)} that of {name(evidence, worse)} {_by(entry)}"
    for baseline in beside:
        if (other := comparison(evidence, better, baseline)) is not None:
            clause += f", and {_side(other)} that of {name(evidence, baseline)} {_by(other)}"
    support = IN_OTHER_WORDS[outcome]
    if support != Support.INCONCLUSIVE:
        nearest = min(abs(entry["low"]), abs(entry["high"]))  # where the interval comes closest to no difference
        if why := unsettled(evidence, better, worse, entry["difference"], nearest):
            support, clause = Support.INCONCLUSIVE, f"{clause}; it depends on the baseline's settings: {why}"
    return Concept(support, under_conditions(evidence, clause), missing)


def _side(entry: dict[str, Any]) -> str:
    return "lower than" if entry["difference"] > 0 else "higher than"


def _by(entry: dict[str, Any]) -> str:
    ends = (entry["low"], entry["high"]) if entry["difference"] > 0 else (-entry["high"], -entry["low"])
    return f"by {abs(entry['difference']):.3f} [{ends[0]:.3f}, {ends[1]:.3f}] nats"


def comparison(evidence: Evidence, better: str, worse: str) -> dict[str, Any] | None:
    """loss(worse) - loss(better), in whichever order it was written."""
    entries = evidence.fits["comparisons"]
    entry = find(entries, a=better, b=worse)
    if entry is not None:
        return entry
    entry = find(entries, a=worse, b=better)
    return None if entry is None else _negated(entry) | {"a": better, "b": worse}


def _negated(entry: dict[str, Any]) -> dict[str, Any]:
    negated = entry | {"difference": -entry["difference"], "low": -entry["high"], "high": -entry["low"]}
    if "per_size" in entry:
        negated["per_size"] = [_negated(size) for size in entry["per_size"]]
    return negated


def claim(id: str, text: str, place: str, better: str, worse: str, any_transformer: bool = False) -> Claim:
    """`any_transformer`: `worse` is the paper's transformer, and the claim is judged against the others too."""
    others = tuple(baseline for baseline in BASELINES if baseline != worse) if any_transformer else ()
    return Claim(
        id=id,
        text=text,
        place=place,
        printed="lower at every N",
        statistic=f"loss of {worse} − loss of {better}, at the geometric-mean N and at every size",
        needs=AT_SCALE,
        decision="Reproduced if the interval of the difference lies above 0 at the geometric-mean N and the estimate "
        "is positive at every size; not reproduced if the interval lies below 0; else inconclusive. Inconclusive in "
        "any case if a compared cell is not tuned, or if another setting improves the loser by as much as the "
        "difference.",
        bounds="0: the claim is about the sign",
        files=("analysis/fits.json", "analysis/runs.csv", "analysis/sensitivity.csv"),
        judge=partial(judge, better=better, worse=worse, beside=others),
        gates=partial(gates, better=better),
        concept=f"with {SAME_SIZES}, supported or contradicted by the same rule, if no setting that was tried improves "
        "the loser by as much as the nearer end of the interval.",
        baseline=worse,
        against=partial(judge, better=better) if any_transformer else None,
    )
