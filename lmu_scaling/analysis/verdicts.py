"""From evidence to a verdict, claim by claim: small functions without files (rules.py has the bounds)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lmu_scaling.analysis.reference import power_laws, transformer_law
from lmu_scaling.analysis.rules import (
    ALPHA_USEFUL,
    EQUAL_ORDER,
    FLAT,
    FLOPS_TOLERANCE,
    GAIN_RATIO,
    INCONCLUSIVE,
    KAPLAN_READINGS,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    R2,
    REPRODUCED,
    SCALE,
    SLOPES,
    TOKEN_FACTOR,
)


@dataclass(frozen=True)
class Evidence:
    """All that analysis/ wrote."""

    runs: pd.DataFrame
    fits: dict[str, Any]
    multipliers: pd.DataFrame
    per_token: pd.DataFrame
    slopes: pd.DataFrame
    counts: pd.DataFrame
    table2: pd.DataFrame
    paper: dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """Our side of a claim: a text, a number with its interval where there is one, the verdict and why."""

    verdict: str
    reason: str
    ours: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    evidence: tuple[str, ...] = ()


def judge(evidence: Evidence) -> dict[str, Finding]:
    """A finding for every claim, in order."""
    return {
        "C1": power_law(evidence, "lmu"),
        "C2": power_law(evidence, "lmu_attention"),
        "C3": lower_loss(evidence, "lmu", "transformer"),
        "C4": lower_loss(evidence, "lmu_attention", "lmu"),
        "C5": token_multiplier(evidence),
        "C6": similar_gain(evidence),
        "C7": along_the_context(evidence, "lmu", flat=True),
        "C8": along_the_context(evidence, "lmu_attention", flat=False),
        "C9": growth(evidence),
        "C10": reduced_order(evidence),
        "C11": counted(evidence),
        "C12": printed_law(evidence),
    }


# ------------------------------------------------------------------------------------------------------ the scale
def shortcomings(evidence: Evidence, variants: tuple[str, ...]) -> list[str]:
    """What the experiment lacks for a claim about the paper's regime; empty if nothing."""
    runs = evidence.runs[(evidence.runs["excluded"] == "") & (evidence.runs["multiple"] == 1)]
    absent = [variant for variant in variants if variant not in set(runs["variant"])]
    if absent:
        return [f"no {' and no '.join(absent)} was trained"]
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
    return [text for text in found if text] + regime(evidence, runs)


def regime(evidence: Evidence, runs: pd.DataFrame) -> list[str]:
    """Tokens to train and to test on, tokenizer and corpus."""
    found = []
    if runs.empty:
        return ["no run at the main budget"]
    if runs["tokens"].min() < SCALE.tokens:
        found.append(f"{runs['tokens'].min():,} training tokens (needs {SCALE.tokens:,.0f})")
    sequences = int(runs["test_tokens"].min() / runs["context"].iloc[0])
    if sequences < SCALE.sequences:
        found.append(f"{sequences} test sequences (needs {SCALE.sequences})")
    if runs["vocab"].iloc[0] != SCALE.vocab:
        found.append(f"a vocabulary of {runs['vocab'].iloc[0]:,} (the paper: {SCALE.vocab:,})")
    if runs["corpus"].iloc[0] not in evidence.paper["experiment"]["corpora"]:
        found.append(f"the corpus is {runs['corpus'].iloc[0]} (the paper: OpenWebText2)")
    return found


def _gated(lacking: list[str], verdict: str, reason: str) -> tuple[str, str]:
    """The scale decides first; what the data say at this scale stays in the reason."""
    if lacking:
        return NOT_TESTABLE, f"{_short_of(lacking)} At this scale: {reason}"
    return verdict, reason


def _short_of(lacking: list[str]) -> str:
    return f"Not at the claim's scale: {'; '.join(lacking)}."


def _inside(low: float, high: float, band: tuple[float, float]) -> str:
    if band[0] <= low and high <= band[1]:
        return REPRODUCED
    return NOT_REPRODUCED if high < band[0] or low > band[1] else INCONCLUSIVE


# --------------------------------------------------------------------------------------------------------- C1, C2
def power_law(evidence: Evidence, variant: str) -> Finding:
    files = ("analysis/fits.json", "analysis/curves.csv", "analysis/runs.csv")
    fit = _find(evidence.fits["power"], variant=variant, multiple=1.0)
    if fit is None or not fit["fitted"]:
        return Finding(NOT_TESTABLE, f"no law in N could be fitted for {variant}", "–", evidence=files)
    low, high, half = fit["alpha_low"], fit["alpha_high"], evidence.paper["rounding"]["alpha"]
    target = fit["paper_alpha"]
    bends = fit["curvature_low"] is not None and not fit["curvature_low"] <= 0 <= fit["curvature_high"]
    straight = fit["r2"] is not None and fit["r2"] >= R2 and not bends
    covers = low <= target + half and target - half <= high
    narrow = (high - low) / 2 <= ALPHA_USEFUL
    if straight and covers and narrow:
        verdict, told = REPRODUCED, "a straight line whose exponent covers the paper's"
    elif (bends and narrow) or (narrow and not covers):
        verdict = NOT_REPRODUCED
        told = "ln L bends in ln N" if bends else f"α's interval excludes the paper's {target}"
    else:
        r2 = "unknown" if fit["r2"] is None else f"{fit['r2']:.3f}"
        verdict, told = INCONCLUSIVE, f"α is known to ±{(high - low) / 2:.3f}, R² = {r2}"
    verdict, reason = _gated(shortcomings(evidence, (variant,)), verdict, told + ".")
    n_c = "?" if fit["n_c"] is None else f"{fit['n_c']:.3g}"
    ours = f"(N / {n_c})^-α, α = {fit['alpha']:.4f}"
    return Finding(verdict, reason, ours, fit["alpha"], low, high, files)


# --------------------------------------------------------------------------------------------------------- C3, C4
def lower_loss(evidence: Evidence, better: str, worse: str) -> Finding:
    """Is loss(worse) - loss(better) positive?"""
    files = ("analysis/fits.json", "analysis/runs.csv")
    entry = _comparison(evidence.fits["comparisons"], better, worse)
    if entry is None:
        return Finding(NOT_TESTABLE, f"{better} and {worse} share no size", "–", evidence=files)
    low, high, value = entry["low"], entry["high"], entry["difference"]
    everywhere = all(size["difference"] > 0 for size in entry["per_size"])
    if low > 0 and everywhere:
        verdict, told = REPRODUCED, f"{better} is better at every size"
    elif high < 0:
        verdict, told = NOT_REPRODUCED, f"{better} is worse than {worse}"
    else:
        verdict, told = INCONCLUSIVE, "the difference is not told from zero, or changes sign between sizes"
    verdict, reason = _gated(
        shortcomings(evidence, (better, worse)), verdict, f"{told} ({value:+.3f} nats at N = {entry['n']:,.0f})."
    )
    return Finding(verdict, reason, f"{value:+.3f} nats", value, low, high, files)


def _comparison(entries: list[dict[str, Any]], better: str, worse: str) -> dict[str, Any] | None:
    """loss(worse) - loss(better), whichever way round it was written."""
    entry = _find(entries, a=better, b=worse)
    if entry is not None:
        return entry
    entry = _find(entries, a=worse, b=better)
    return None if entry is None else _mirrored(entry)


def _mirrored(entry: dict[str, Any]) -> dict[str, Any]:
    turned = entry | {"difference": -entry["difference"], "low": -entry["high"], "high": -entry["low"]}
    if "per_size" in entry:
        turned["per_size"] = [_mirrored(size) for size in entry["per_size"]]
    return turned


# --------------------------------------------------------------------------------------------------------- C5, C6
def token_multiplier(evidence: Evidence) -> Finding:
    files = ("analysis/multipliers.csv", "analysis/runs.csv")
    table = evidence.multipliers
    printed = table[(table["variant"] == "paper_lmu") & (table["quantity"] == "tokens")]
    never = (
        " By the paper's own printed fits the multiplier is infinite at every N, not 10: the LMU's curve lies below "
        "the transformer's curve for infinitely many steps."
        if len(printed) and np.isinf(printed["value"]).all()
        else ""
    )
    ours = table[(table["variant"] == "lmu") & (table["quantity"] == "tokens") & (table["against"] == "transformer")]
    if ours.empty:
        return Finding(NOT_TESTABLE, f"no transformer of our own to compare with.{never}", "–", evidence=files)
    row = ours.sort_values("n").iloc[len(ours) // 2]
    lacking = shortcomings(evidence, ("lmu", "transformer"))
    if row["largest"] < 10 and row["beyond"]:
        lacking.append(f"a transformer on {row['largest']:g}× the tokens (needs 10×)")
    if row["beyond"]:
        verdict = REPRODUCED if row["low"] >= 10 else INCONCLUSIVE
    else:
        verdict = _inside(row["low"], row["high"], TOKEN_FACTOR)
    told = f"the transformer needs {row['text']} times the tokens at N = {row['n']:,.0f}."
    verdict, reason = _gated(lacking, verdict, told)
    return Finding(verdict, reason + never, f"{row['text']}×", row["value"], row["low"], _finite(row["high"]), files)


def similar_gain(evidence: Evidence) -> Finding:
    files = ("analysis/fits.json", "analysis/runs.csv")
    entry = _find(evidence.fits["gain"], variant="lmu")
    if entry is None:
        return Finding(NOT_TESTABLE, "needs LMU, transformer and LSTM at two sizes or more", "–", evidence=files)
    if (share := entry["denominator_positive_share"]) < 0.975:
        sign = "negative" if share <= 0.025 else "not told from zero"
        verdict, told = INCONCLUSIVE, f"the transformer's own gain over the LSTM is {sign}"
    else:
        verdict = _inside(entry["low"], entry["high"], GAIN_RATIO)
        told = f"gain {entry['gain']:+.3f} against {entry['gain_of_transformer']:+.3f} nats"
    verdict, reason = _gated(shortcomings(evidence, ("lmu", "transformer", "lstm")), verdict, told + ".")
    return Finding(verdict, reason, f"ratio {entry['ratio']:.2f}", entry["ratio"], entry["low"], entry["high"], files)


# --------------------------------------------------------------------------------------------------------- C7, C8
def along_the_context(evidence: Evidence, variant: str, flat: bool) -> Finding:
    files = ("analysis/per_token_fits.csv", "analysis/per_token.parquet")
    table = evidence.per_token
    runs = evidence.runs
    runs = runs[(runs["excluded"] == "") & (runs["variant"] == variant) & (runs["multiple"] == 1)]
    own = table[(table["variant"] == variant) & (table["multiple"] == 1) & (table["axis"] == "window")]
    own = own[own["size"].astype(str).isin(runs["size"].astype(str))]  # of usable runs at the main budget alone
    if own.empty:
        return Finding(NOT_TESTABLE, f"no {variant} was trained", "–", evidence=files)
    largest = runs[runs["size"].isin(own["size"].astype(str))].sort_values("n_exact")["size"].iloc[-1]
    row = own[own["size"].astype(str) == str(largest)].iloc[0]
    context = int(runs["context"].iloc[0])
    lacking = [] if context >= SCALE.context else [f"a context of {context} tokens (needs {SCALE.context})"]
    lacking += regime(evidence, runs)
    if not np.isfinite(row["plateau"]):
        return Finding(NOT_TESTABLE, _short_of(lacking), "–", evidence=files)
    value, low, high = row["plateau"], row["plateau_low"], row["plateau_high"]
    verdict = INCONCLUSIVE
    if high < FLAT:
        verdict = REPRODUCED if flat else NOT_REPRODUCED
    elif low > FLAT:
        verdict = NOT_REPRODUCED if flat else REPRODUCED
    told = f"{value:+.3f} nats are gained between positions {row['early']} and {row['late']} (flat: below {FLAT})."
    verdict, reason = _gated(lacking, verdict, told)
    return Finding(verdict, reason, f"{value:+.3f} nats", float(value), float(low), float(high), files)


# ------------------------------------------------------------------------------------------------------ C9 to C12
def growth(evidence: Evidence) -> Finding:
    files = ("analysis/complexity_slopes.csv", "analysis/complexity.csv")
    told, verdicts, slopes = [], [], {}
    for (layer, quantity), band in SLOPES.items():
        row = evidence.slopes[(evidence.slopes["layer"] == layer) & (evidence.slopes["quantity"] == quantity)].iloc[0]
        slopes[layer, quantity] = f"{row['slope']:.2f}"
        told.append(f"{layer} {quantity} {row['slope']:.2f}")
        if band[0] <= row["slope"] <= band[1]:
            verdicts.append(REPRODUCED)
        else:
            outside = row["low"] > band[1] or row["high"] < band[0]
            verdicts.append(NOT_REPRODUCED if outside else INCONCLUSIVE)
    verdict = next(v for v in (NOT_REPRODUCED, INCONCLUSIVE, REPRODUCED) if v in verdicts)
    fused = evidence.slopes[(evidence.slopes["layer"] == "attention_flash") & (evidence.slopes["quantity"] == "memory")]
    aside = f" Fused attention holds no n × n matrix: memory {fused['slope'].iloc[0]:.2f}." if len(fused) else ""
    longest = int(evidence.slopes["n_max"].max())
    lacking = [] if longest >= SCALE.length else [f"sequences of {longest} tokens (needs {SCALE.length})"]
    verdict, reason = _gated(lacking, verdict, f"slopes: {'; '.join(told)}.{aside}")
    layers = ("lmu_parallel", "lmu_recurrent", "attention")  # in the order of the claim, as the paper's values are
    ours = "; ".join(f"{slopes[layer, 'memory']} and {slopes[layer, 'compute']}" for layer in layers)
    return Finding(verdict, reason, f"exponents {ours}", evidence=files)


def reduced_order(evidence: Evidence) -> Finding:
    files = ("analysis/counts.csv",)
    rows = evidence.counts.dropna(subset=["reduced_order_error"])
    if rows.empty:
        return Finding(NOT_TESTABLE, "no model with a memory is configured", "–", evidence=files)
    error = float(rows["reduced_order_error"].max())
    cheaper = bool((rows["flops_reduced_order"] < rows["flops_full_order"]).all())
    verdict = REPRODUCED if error < EQUAL_ORDER and cheaper else NOT_REPRODUCED
    saving = (rows["flops_full_order"] / rows["flops_reduced_order"]).median()
    reason = (
        f"largest relative difference {error:.1e} over {len(rows)} models; {saving:.1f} times fewer FLOPs (median)."
    )
    return Finding(verdict, reason, f"{error:.1e}", error, evidence=files)


def counted(evidence: Evidence) -> Finding:
    files = ("analysis/table2.csv", "analysis/counts.csv")
    rows = evidence.table2[evidence.table2["flops"].notna()]
    same = bool((rows["parameters"] == rows["parameters_measured"]).all())
    models = evidence.counts
    same &= bool((models["n_exact"] == models["n_exact_measured"]).all())
    worst = float((rows["flops_measured"] / rows["flops"] - 1).abs().max())
    verdict = REPRODUCED if same and worst <= FLOPS_TOLERANCE else NOT_REPRODUCED
    equal = "equal" if same else "NOT equal"
    reason = (
        f"parameters {equal} in {len(rows)} operations and {len(models)} models; FLOPs differ by {worst:.2%} at most."
    )
    if same and verdict == NOT_REPRODUCED:  # the formulas are not to blame for the padding of a transform
        verdict, reason = _gated(padded(int(models["context"].iloc[0])), verdict, reason)
    return Finding(verdict, reason, f"{worst:.2%} apart", worst, evidence=files)


def padded(n: int) -> list[str]:
    """What a context lacks for its transforms to be those of Table 2."""
    if n >= SCALE.transform and n & (n - 1) == 0:
        return []
    return [f"a context that is a power of two and at least {SCALE.transform} (has {n:,})"]


def printed_law(evidence: Evidence) -> Finding:
    paper, files = evidence.paper, ("workflow/catalog/paper.yaml", "analysis/curves.csv")
    n = np.geomspace(paper["experiment"]["n_min"], paper["experiment"]["n_max"], 50)
    steps = paper["experiment"]["steps"]
    literal, comment, own = (transformer_law(paper, name) for name in ("literal", "kaplan_comment", "kaplan_self"))
    depends = bool(np.ptp(literal.loss(n[0], steps * np.array([1, 10, 100]))) > 0)
    gap = float(np.abs(literal.loss(n, steps) - comment.loss(n, steps)).max())
    readings = float(np.abs(own.loss(n, steps) - comment.loss(n, steps)).max())
    above = bool((literal.loss(n, steps) > power_laws(paper)["lstm"].loss(n)).all())
    verdict = REPRODUCED if depends and gap < KAPLAN_READINGS else NOT_REPRODUCED
    reason = (
        f"As printed the law {'depends' if depends else 'does not depend'} on S, "
        f"{'lies above the LSTM everywhere and ' if above else ''}is up to {gap:.2f} nats off Kaplan's eq. 1.6; "
        f"the two readings of eq. 1.6 differ by {readings:.3f} at most, and one of them is drawn."
    )
    return Finding(verdict, reason, f"{gap:.2f} nats off Kaplan", gap, evidence=files)


def _find(entries: list[dict[str, Any]], **wanted: Any) -> dict[str, Any] | None:
    return next((e for e in entries if all(e.get(key) == value for key, value in wanted.items())), None)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
