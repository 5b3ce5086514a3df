"""C5: transformers need ten times the tokens to match the LMU."""

import numpy as np

from lmu_scaling.analysis.claims.common import (
    AT_SCALE,
    Claim,
    Evidence,
    Finding,
    Verdict,
    judge_interval,
    missing_scale,
)

MULTIPLIER = (5.0, 20.0)


def judge(evidence: Evidence) -> Finding:
    claimed = evidence.paper["data_efficiency"]["token_multiplier"]
    table = evidence.multipliers[evidence.multipliers["quantity"] == "tokens"]
    printed = table[table["variant"] == "paper_lmu"]
    infinite = (
        f" By the paper's own printed fits the multiplier is infinite at every N, not {claimed}: the LMU's curve lies "
        "below the transformer's curve for infinitely many steps."
        if len(printed) and np.isinf(printed["value"]).all()
        else ""
    )
    ours = table[(table["variant"] == "lmu") & (table["against"] == "transformer")]
    if ours.empty:
        return Finding(Verdict.NOT_TESTABLE, f"no transformer of our own to compare with.{infinite}")
    row = ours.sort_values("n").iloc[len(ours) // 2]
    missing = missing_scale(evidence, "lmu", "transformer")
    if row["largest"] < claimed and row["beyond"]:
        missing += (f"a transformer on {row['largest']:g}× the tokens (needs {claimed}×)",)
    if row["beyond"]:
        outcome = Verdict.REPRODUCED if row["low"] >= claimed else Verdict.INCONCLUSIVE
    else:
        outcome = judge_interval(row["low"], row["high"], MULTIPLIER)
    detail = f"the transformer needs {row['text']} times the tokens at N = {row['n']:,.0f}.{infinite}"
    high = float(row["high"]) if np.isfinite(row["high"]) else None
    return Finding(outcome, detail, f"{row['text']}×", row["value"], row["low"], high, missing)


CLAIM = Claim(
    id="C5",
    text="Transformers need ten times the tokens to match the LMU model",
    place="abstract; section 5, figure 5",
    printed="{data_efficiency[token_multiplier]}x",
    statistic="token multiplier against our own transformer, at the middle size",
    needs=f"{AT_SCALE}, if our transformer reaches the LMU's loss or was trained on the claimed multiple of the tokens",
    decision=f"Reproduced if the multiplier's interval lies within {MULTIPLIER[0]:g}–{MULTIPLIER[1]:g}, or if it is a "
    "lower bound of at least {data_efficiency[token_multiplier]}; not reproduced if the interval lies outside; else "
    "inconclusive.",
    bounds=f"{MULTIPLIER[0]:g}–{MULTIPLIER[1]:g}: “about ten times” is taken as within a factor of two",
    files=("analysis/multipliers.csv", "analysis/runs.csv"),
    judge=judge,
)
