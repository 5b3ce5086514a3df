"""What all claims share: evidence, findings, verdicts, and the scale an experiment needs before a claim is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd


class Verdict(StrEnum):
    """The only verdicts there are, in the order in which they are listed."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTABLE = "not testable at this scale"


MEANING = {
    Verdict.REPRODUCED: "the experiment is at the claim's scale, and its interval lies where the claim says",
    Verdict.NOT_REPRODUCED: "the experiment is at the claim's scale, and its interval lies elsewhere",
    Verdict.INCONCLUSIVE: "the experiment is at the claim's scale, but its interval covers both",
    Verdict.NOT_TESTABLE: "the experiment lacks sizes, span of N, seeds, tokens, context or the tokenizer; what was "
    "measured is reported, but it is not a verdict",
}


@dataclass(frozen=True)
class Evidence:
    """Everything that the other jobs of analysis/ wrote, and the paper's printed numbers (paper.yaml)."""

    runs: pd.DataFrame
    fits: dict[str, Any]
    multipliers: pd.DataFrame
    per_token: pd.DataFrame
    slopes: pd.DataFrame
    counts: pd.DataFrame
    table2: pd.DataFrame
    paper: dict[str, Any]

    @property
    def main_runs(self) -> pd.DataFrame:
        """Usable runs at the main token budget."""
        return self.runs[(self.runs["excluded"] == "") & (self.runs["multiple"] == 1)]


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

    @property
    def verdict(self) -> Verdict:
        return Verdict.NOT_TESTABLE if self.missing else self.outcome

    @property
    def reason(self) -> str:
        if not self.missing:
            return self.detail
        gate = f"Not at the claim's scale: {'; '.join(self.missing)}."
        return f"{gate} At this scale: {self.detail}" if self.detail else gate


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

    def rule(self, paper: dict[str, Any]) -> str:
        return f"Testable {self.needs}. Statistic: {self.statistic}. {fill(self.decision, paper)}"


def fill(text: str, paper: dict[str, Any]) -> str:
    """Fill in printed numbers, e.g. {power_laws[lmu][alpha]}."""
    return text.format(**paper).replace("e+", "e")


# ------------------------------------------------------------------------------------------------- the scale gate
def _least(value: float, reason: str) -> Any:
    return field(default=value, metadata={"reason": reason})


@dataclass(frozen=True)
class Scale:
    """The least an experiment must have before a claim about the paper's regime is judged, each with its reason."""

    sizes: int = _least(4, "two sizes fix a line; four show whether it is one")
    decades: float = _least(1.0, "log₁₀ of largest over smallest N; the paper spans 1.26")
    n_max: float = _least(5e5, "the largest N must reach half of the paper's largest model")
    seeds: int = _least(2, "one seed has no spread")
    tokens: float = _least(1e9, "a thirteenth of the paper's training tokens: below, data and not N limit the loss")
    sequences: int = _least(
        20,
        "test sequences: from b of them the bootstrap sees a spread that is √(1 − 1/b) of the true one; from 1, none",
    )


SCALE = Scale()
REGIME = (
    f"{SCALE.tokens:,.0f} training tokens of OpenWebText2 with GPT-2's tokenizer, and {SCALE.sequences} test sequences"
)
AT_SCALE = (
    f"with at least {SCALE.sizes} sizes over {SCALE.decades:g} decade of N reaching {SCALE.n_max:,.0f}, "
    f"{SCALE.seeds} seeds, {REGIME}"
)


def missing_scale(evidence: Evidence, *variants: str) -> tuple[str, ...]:
    """What the experiment lacks for a claim that compares sizes of these variants; empty if nothing."""
    runs = evidence.main_runs
    absent = [variant for variant in variants if variant not in set(runs["variant"])]
    if absent:
        return (f"no {' and no '.join(absent)} was trained",)
    groups = [runs[runs["variant"] == variant] for variant in variants]
    sizes = min(own["n_exact"].nunique() for own in groups)
    decades = min(float(np.log10(own["n_exact"].max() / own["n_exact"].min())) for own in groups)
    n_max = min(int(own["n_exact"].max()) for own in groups)
    seeds = min(int(own.groupby("size")["seed"].nunique().min()) for own in groups)
    found = [
        f"{sizes} sizes (needs {SCALE.sizes})" if sizes < SCALE.sizes else "",
        f"{decades:.2f} decades of N (needs {SCALE.decades:g})" if decades < SCALE.decades else "",
        f"N up to {n_max:,} (needs {SCALE.n_max:,.0f})" if n_max < SCALE.n_max else "",
        f"{seeds} seed at some size (needs {SCALE.seeds})" if seeds < SCALE.seeds else "",
    ]
    return tuple(text for text in found if text) + missing_regime(evidence, runs)


def missing_regime(evidence: Evidence, runs: pd.DataFrame) -> tuple[str, ...]:
    """What these runs lack in training and test tokens, tokenizer and corpus."""
    if runs.empty:
        return ("no run at the main budget",)
    found, printed = [], evidence.paper["experiment"]
    if runs["tokens"].min() < SCALE.tokens:
        found.append(f"{runs['tokens'].min():,} training tokens (needs {SCALE.tokens:,.0f})")
    sequences = int(runs["test_tokens"].min() / runs["context"].iloc[0])
    if sequences < SCALE.sequences:
        found.append(f"{sequences} test sequences (needs {SCALE.sequences})")
    if runs["vocab"].iloc[0] != printed["vocab"]:
        found.append(f"a vocabulary of {runs['vocab'].iloc[0]:,} (the paper: {printed['vocab']:,})")
    if runs["corpus"].iloc[0] not in printed["corpora"]:
        found.append(f"the corpus is {runs['corpus'].iloc[0]} (the paper: OpenWebText2)")
    return tuple(found)


# ------------------------------------------------------------------------------------------------------- helpers
def judge_interval(low: float, high: float, bounds: tuple[float, float]) -> Verdict:
    """Reproduced if the interval lies within the bounds, not reproduced if outside, else inconclusive."""
    if bounds[0] <= low and high <= bounds[1]:
        return Verdict.REPRODUCED
    return Verdict.NOT_REPRODUCED if high < bounds[0] or low > bounds[1] else Verdict.INCONCLUSIVE


def find(entries: list[dict[str, Any]], **wanted: Any) -> dict[str, Any] | None:
    """The first entry with these values."""
    return next((e for e in entries if all(e.get(key) == value for key, value in wanted.items())), None)
