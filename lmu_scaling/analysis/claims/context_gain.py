"""C7 and C8: does the loss of a variant still fall along the context, or is it flat?"""

from __future__ import annotations

from functools import partial

import numpy as np

from lmu_scaling.analysis.claims.common import REGIME, Claim, Evidence, Finding, Verdict, missing_regime

MIN_CONTEXT = 512
FLAT = 0.06


def judge(evidence: Evidence, variant: str, below: Verdict, above: Verdict) -> Finding:
    """`below` and `above` are the outcomes of an interval below and above `FLAT`."""
    runs = evidence.main_runs
    runs = runs[runs["variant"] == variant]
    table = evidence.per_token
    own = table[(table["variant"] == variant) & (table["multiple"] == 1) & (table["axis"] == "window")]
    own = own[own["size"].astype(str).isin(runs["size"].astype(str))]
    if own.empty:
        return Finding(Verdict.NOT_TESTABLE, f"no {variant} was trained")
    largest = runs[runs["size"].isin(own["size"].astype(str))].sort_values("n_exact")["size"].iloc[-1]
    row = own[own["size"].astype(str) == str(largest)].iloc[0]
    context = int(runs["context"].iloc[0])
    short = (f"a context of {context} tokens (needs {MIN_CONTEXT})",) if context < MIN_CONTEXT else ()
    missing = short + missing_regime(evidence, runs)
    if not np.isfinite(row["plateau"]):
        return Finding(Verdict.NOT_TESTABLE, "", missing=missing)
    value, low, high = float(row["plateau"]), float(row["plateau_low"]), float(row["plateau_high"])
    outcome = below if high < FLAT else above if low > FLAT else Verdict.INCONCLUSIVE
    detail = f"{value:+.3f} nats are gained between positions {row['early']} and {row['late']} (flat: below {FLAT})."
    return Finding(outcome, detail, f"{value:+.3f} nats", value, low, high, missing)


def claim(id: str, text: str, place: str, printed: str, variant: str, flat: bool) -> Claim:
    side, other = ("below", "above") if flat else ("above", "below")
    below, above = (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED)[:: 1 if flat else -1]
    return Claim(
        id=id,
        text=text,
        place=place,
        printed=printed,
        statistic="loss at positions 65–128 minus loss in the second half of the context, for the largest size",
        needs=f"with a context of at least {MIN_CONTEXT} tokens, {REGIME}",
        decision=f"Reproduced if the interval of the gain lies {side} {FLAT} nats, not reproduced if {other}, else "
        "inconclusive.",
        bounds=f"{FLAT} nats: a quarter of the 0.23 that Kaplan's smallest per-token law gains from 64–128 to 512–1024 "
        "tokens ({per_token_laws[0][e]} + {per_token_laws[0][a]} T^-{per_token_laws[0][exponent]}); context "
        f"{MIN_CONTEXT}: half of the paper's, and well beyond the {{per_token[flattens_at]}} tokens of the claim",
        files=("analysis/per_token_fits.csv", "analysis/per_token.parquet"),
        judge=partial(judge, variant=variant, below=below, above=above),
    )
