"""What all claims share: evidence, findings, and the verdicts of direct and of conceptual replication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import pandas as pd

from lmu_scaling.analysis.table import MAIN, main_runs


class Verdict(StrEnum):
    """Direct replication, in the paper's regime: the only verdicts there are, in the order in which they are listed."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTABLE = "not testable at this scale"


class Support(StrEnum):
    """Conceptual replication: what the same qualitative claim looks like under other, stated conditions."""

    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    INCONCLUSIVE = "inconclusive"
    NOT_MET = "conditions not met"
    NOT_APPLICABLE = "not applicable"


MEANING = {
    Verdict.REPRODUCED: "the experiment is at the claim's scale, and its interval lies where the claim says",
    Verdict.NOT_REPRODUCED: "the experiment is at the claim's scale, and its interval lies elsewhere",
    Verdict.INCONCLUSIVE: "the experiment is at the claim's scale, but its interval covers both, or a setting that is "
    "not part of the claim matters as much as what is compared",
    Verdict.NOT_TESTABLE: "the experiment lacks sizes, span of N, seeds, tokens, context or the tokenizer; what was "
    "measured is reported, but it is not a verdict",
}
SUPPORT_MEANING = {
    Support.SUPPORTS: "under the stated conditions the effect has the claimed direction; no statement about the "
    "paper's values",
    Support.CONTRADICTS: "under the stated conditions the effect has the opposite direction, or is absent",
    Support.INCONCLUSIVE: "the interval covers both, or the sign depends on the baseline's settings",
    Support.NOT_MET: "the experiment is too small, too noisy or not tuned well enough even for this; what is missing "
    "is named",
    Support.NOT_APPLICABLE: "the claim needs no training and is judged directly",
}
# What a finding says in each of the two vocabularies.
IN_OTHER_WORDS = {
    Verdict.REPRODUCED: Support.SUPPORTS,
    Verdict.NOT_REPRODUCED: Support.CONTRADICTS,
    Verdict.INCONCLUSIVE: Support.INCONCLUSIVE,
    Verdict.NOT_TESTABLE: Support.NOT_MET,
}


@dataclass(frozen=True)
class Evidence:
    """Everything that the other jobs of analysis/ wrote, and the paper's printed numbers (paper.yaml)."""

    runs: pd.DataFrame
    fits: dict[str, Any]
    multipliers: pd.DataFrame
    per_token: pd.DataFrame
    sensitivity: pd.DataFrame
    slopes: pd.DataFrame
    counts: pd.DataFrame
    table2: pd.DataFrame
    paper: dict[str, Any]

    @property
    def main_runs(self) -> pd.DataFrame:
        """Usable runs at the main token budget."""
        return self.at_main_budget()

    def at_main_budget(self, setting: str = MAIN) -> pd.DataFrame:
        runs = main_runs(self.runs, setting)
        return runs[runs["multiple"] == 1]

    def trained(self, variant: str) -> bool:
        return variant in set(self.main_runs["variant"])


@dataclass(frozen=True)
class Concept:
    """What the results say about a claim under their own conditions; `missing` names the conditions that they fail."""

    outcome: Support
    statement: str
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> Support:
        return Support.NOT_MET if self.missing else self.outcome

    @property
    def reason(self) -> str:
        if not self.missing:
            return self.statement
        gate = f"Conditions not met: {'; '.join(self.missing)}."
        return f"{gate} Measured, without a verdict: {self.statement}" if self.statement else gate


DIRECTLY = Concept(Support.NOT_APPLICABLE, "The claim needs no training and is judged directly.")


@dataclass(frozen=True)
class Finding:
    """What the results say about a claim.

    `outcome` is the verdict that the numbers alone give, `missing` what the experiment lacks for it to count.
    """

    outcome: Verdict
    detail: str
    ours: str = "–"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    missing: tuple[str, ...] = ()
    concept: Concept = DIRECTLY

    @property
    def verdict(self) -> Verdict:
        return Verdict.NOT_TESTABLE if self.missing else self.outcome

    @property
    def reason(self) -> str:
        if not self.missing:
            return self.detail
        gate = f"Not at the claim's scale: {'; '.join(self.missing)}."
        return f"{gate} At this scale: {self.detail}" if self.detail else gate


def absent(detail: str) -> Finding:
    """A finding on a claim for which nothing was trained."""
    return Finding(Verdict.NOT_TESTABLE, f"{detail}.", concept=Concept(Support.NOT_MET, "", (detail,)))


class Gates(NamedTuple):
    """What an experiment lacks for the two verdicts on a claim."""

    direct: tuple[str, ...]
    conceptual: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """One claim of the paper and the rule that judges it.

    Fields in braces in `printed`, `decision` and `bounds` are looked up in lmu_scaling/catalog/paper.yaml (`fill`).
    """

    id: str
    text: str  # the claim, paraphrased
    place: str  # where the paper makes it
    printed: str  # the paper's value
    statistic: str  # what is computed from our results
    needs: str  # when the claim can be judged; completes "Testable …"
    decision: str  # when it is reproduced and when not
    bounds: str  # the bounds of the decision and why they have these values
    files: tuple[str, ...]  # the evidence, relative to results/<experiment>/
    judge: Callable[[Evidence], Finding]
    concept: str = "Not applicable: judged directly."  # when it is supported under other conditions, and when not
    gates: Callable[[Evidence, str], Gates] | None = None  # what an experiment lacks to judge it against this baseline
    baseline: str = ""  # what it is judged against, if that is a model of ours
    against: Callable[[Evidence, str], Finding] | None = None  # the same against another transformer

    def rule(self, paper: dict[str, Any]) -> str:
        direct = f"Testable {self.needs}. Statistic: {self.statistic}. {fill(self.decision, paper)}"
        return f"{direct} Under other conditions: {fill(self.concept, paper)}"


def fill(text: str, paper: dict[str, Any]) -> str:
    """Fill in printed numbers, e.g. {power_laws[lmu][alpha]}."""
    return text.format(**paper).replace("e+", "e")


def requirement(value: float, reason: str) -> Any:
    """A field of a gate: its bound and the reason for it, which docs/claims.md shows."""
    return field(default=value, metadata={"reason": reason})


# ------------------------------------------------------------------------------------------------------- helpers
def judge_interval(low: float, high: float, bounds: tuple[float, float]) -> Verdict:
    """Reproduced if the interval lies within the bounds, not reproduced if outside, else inconclusive."""
    if bounds[0] <= low and high <= bounds[1]:
        return Verdict.REPRODUCED
    return Verdict.NOT_REPRODUCED if high < bounds[0] or low > bounds[1] else Verdict.INCONCLUSIVE


def find(entries: list[dict[str, Any]], **wanted: Any) -> dict[str, Any] | None:
    """The first entry with these values."""
    return next((e for e in entries if all(e.get(key) == value for key, value in wanted.items())), None)
