"""C7 and C8: does the loss of a variant still fall along the context, or is it flat?

A transformer of ours is the positive control: it must gain over the same positions, else the text has nothing to gain
there and every model looks flat. The variant is compared with it over the same documents, which is several times as
precise as its own gain.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

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
)
from lmu_scaling.analysis.claims.conditions import missing_conditions, missing_context, name, under_conditions
from lmu_scaling.analysis.claims.nuisance import cells, edges, precisions
from lmu_scaling.analysis.claims.scale import REGIME, missing_regime
from lmu_scaling.analysis.comparisons import PAPER_BASELINE
from lmu_scaling.analysis.per_token import EARLY, EXCESS
from lmu_scaling.analysis.reference import per_token_laws

Interval = tuple[float, ...]  # estimate, low, high
MIN_CONTEXT = 512
SHARE = 0.25


def flat_bound(paper: dict[str, Any], context: int) -> float:
    """A quarter of what Kaplan's smallest per-token law gains over the same positions [nats]."""
    _, law = per_token_laws(paper)[0]
    early, late = np.arange(EARLY[0] + 1, EARLY[1] + 1), np.arange(context // 2 + 1, context + 1)
    return SHARE * float(law.loss(early).mean() - law.loss(late).mean())


def judge(
    evidence: Evidence, control: str = PAPER_BASELINE, *, variant: str, if_flat: Verdict, if_falling: Verdict
) -> Finding:
    runs = evidence.main_runs
    runs = runs[runs["variant"] == variant]
    row = _largest(evidence, runs, variant)
    if row is None:
        return absent(f"no {variant} was trained")
    used = _cells(evidence, variant, control, str(row["size"]))
    missing, missed = gates(evidence, control, variant, str(row["size"]))
    if not np.isfinite(row["plateau"]):
        return Finding(Verdict.NOT_TESTABLE, "", missing=missing, concept=Concept(Support.NOT_MET, "", missed))
    bound = flat_bound(evidence.paper, int(row["n"]))
    excess = tuple(float(row.get(f"{EXCESS[control]}{end}", np.nan)) for end in ("", "_low", "_high"))
    problem = _control(evidence, row, excess, control, bound)
    state = "" if problem else _state(row, excess, bound)
    outcome = {"flat": if_flat, "falling": if_falling}.get(state, Verdict.INCONCLUSIVE)
    detail = _told(evidence, row, excess, control, bound)
    concept = Concept(
        IN_OTHER_WORDS[outcome],
        under_conditions(evidence, f"{name(evidence, variant)} gained {detail}"),
        missed + ((problem,) if problem else ()),
    )
    if problem or (outcome != Verdict.INCONCLUSIVE and (why := edges(used))):
        outcome, detail = Verdict.INCONCLUSIVE, f"{problem or f'not tuned: {why}'}; gained: {detail}"
    value, low, high = (float(row[key]) for key in ("plateau", "plateau_low", "plateau_high"))
    return Finding(outcome, f"{detail}.", f"{value:+.3f} nats", value, low, high, missing, concept)


def gates(evidence: Evidence, control: str, variant: str, size: str | None = None) -> Gates:
    """What this size lacks, the largest one by default."""
    runs = evidence.main_runs
    runs = runs[runs["variant"] == variant]
    if runs.empty:
        return Gates(*[(f"no {variant} was trained",)] * 2)
    size = size or str(runs.sort_values("n_exact")["size"].iloc[-1])
    context = int(runs["context"].iloc[0])
    short = (f"a context of {context} tokens (needs {MIN_CONTEXT})",) if context < MIN_CONTEXT else ()
    direct = short + missing_regime(evidence, runs) + precisions(_cells(evidence, variant, control, size))
    return Gates(direct, missing_context(runs) + missing_conditions(evidence, variant, control, size=size))


def _cells(evidence: Evidence, variant: str, control: str, size: str) -> pd.DataFrame:
    used = cells(evidence, variant, control)
    return used[used["size"] == size]


def _largest(evidence: Evidence, runs: pd.DataFrame, variant: str) -> Any | None:
    """The row of the largest size that has a curve."""
    table = evidence.per_token
    own = table[(table["variant"] == variant) & (table["multiple"] == 1) & (table["axis"] == "window")]
    own = own[own["size"].astype(str).isin(runs["size"].astype(str))]
    if own.empty:
        return None
    largest = runs[runs["size"].isin(own["size"].astype(str))].sort_values("n_exact")["size"].iloc[-1]
    return own[own["size"].astype(str) == str(largest)].iloc[0]


def _control(evidence: Evidence, row: Any, excess: Interval, baseline: str, bound: float) -> str:
    """Why the positions tell nothing: no transformer that gains there, or a variant that gains nothing before them."""
    table = evidence.per_token
    control = table[(table["variant"] == baseline) & (table["multiple"] == 1) & (table["axis"] == "window")]
    control = control[control["size"].astype(str) == str(row["size"])]
    if control.empty or not np.isfinite(excess[0]):
        return f"no {name(evidence, baseline)[2:]} of the same size is there as a control"
    gain, low = float(control["plateau"].iloc[0]), float(control["plateau_low"].iloc[0])
    if not low > 0:
        gained = f"does not gain over these positions either ({gain:+.3f} nats)"
        return f"the control fails: {name(evidence, baseline)} {gained}"
    if not row["approach_low"] > bound:
        ends = f"[{row['approach_low']:+.3f}, {row['approach_high']:+.3f}]"
        gained = f"{row['approach']:+.3f} {ends} nats up to position {EARLY[1]}"
        return f"{name(evidence, str(row['variant']))} may have learned nothing from context: it gains {gained}"
    return ""


def _state(row: Any, excess: Interval, bound: float) -> str:
    """`flat`, `falling`, or neither, if the intervals allow both or none."""
    _, low, high = excess
    flat = row["plateau_high"] < bound and high < 0
    falling = row["plateau_low"] > bound or (row["plateau_low"] > 0 and low > -bound)
    return "" if flat == falling else "flat" if flat else "falling"


def _told(evidence: Evidence, row: Any, excess: Interval, baseline: str, bound: float) -> str:
    value, low, high = excess
    return (
        f"{row['plateau']:+.3f} nats between positions {row['early']} and {row['late']} (flat: below {bound:.3f}), "
        f"which differs from the gain of {name(evidence, baseline)} by {value:+.3f} [{low:+.3f}, {high:+.3f}]"
    )


def claim(id: str, text: str, place: str, printed: str, variant: str, flat: bool) -> Claim:
    if_flat, if_falling = (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED)[:: 1 if flat else -1]
    against = partial(judge, variant=variant, if_flat=if_flat, if_falling=if_falling)
    states = (
        "Flat: the interval of the gain lies below the bound and that of the difference below 0. Falling: the interval "
        "of the gain lies above the bound; or above 0, and that of the difference above minus the bound."
    )
    return Claim(
        id=id,
        text=text,
        place=place,
        printed=printed,
        statistic="gain, the loss at positions 65–128 minus that in the second half of the context, for the largest "
        "size; and its difference from our transformer's gain, resampled over the same documents",
        needs=f"with a context of at least {MIN_CONTEXT} tokens, {REGIME}",
        decision=f"{states} Reproduced if {'flat' if flat else 'falling'}, not reproduced if "
        f"{'falling' if flat else 'flat'}, inconclusive if neither or both. Inconclusive in any case if our "
        "transformer does not gain over these positions (the control), if the variant gains less than the bound "
        "up to position 128 (it may have learned nothing), or if a cell is not tuned.",
        bounds=f"the bound is {SHARE:g} of what Kaplan's smallest per-token law ({{per_token_laws[0][e]}} + "
        "{per_token_laws[0][a]} T^-{per_token_laws[0][exponent]}) gains over the same positions: 0.059 nats in a "
        f"context of 1024, 0.045 of 512, 0.026 of 256; context {MIN_CONTEXT}: half of the paper's, and well beyond the "
        "{per_token[flattens_at]} tokens of the claim",
        files=("analysis/per_token_fits.csv", "analysis/per_token.parquet", "analysis/runs.csv"),
        judge=against,
        gates=partial(gates, variant=variant),
        concept=f"by the same rule, with a context of {MIN_CONTEXT} tokens, documents longer than that, and the "
        "control passed.",
        baseline=PAPER_BASELINE,
        against=against,
    )
