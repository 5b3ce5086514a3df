"""Conceptual replication: conditions under which an experiment of another scale bears on a claim, and their words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmu_scaling.analysis.claims.common import Evidence, requirement
from lmu_scaling.analysis.claims.nuisance import SHORTEST_SWEEP, cells, edges, precisions, short_sweeps

DIRECTION = "This bears on the direction of the paper's claim, not on its values."
NAMES = {
    "lmu": "the LMU",
    "lmu_attention": "the LMU with attention",
    "transformer": "a GPT-2-style transformer",
    "transformer_modern": "a modern transformer",
    "transformer_rotary": "a GPT-2-style transformer with rotary positions",
    "lstm": "an LSTM",
}


@dataclass(frozen=True)
class Conditions:
    """The least an experiment must have before it bears on a claim, each with its reason."""

    sizes: int = requirement(5, "a bend cannot be told from noise with fewer")
    decades: float = requirement(1.2, "log₁₀ of largest over smallest N; as much as the paper's 1.26")
    seeds: int = requirement(2, "at the main budget; one seed has no spread")
    tokens_per_parameter: float = requirement(
        100, "training tokens per non-embedding parameter at the largest N: below, the larger models are undertrained"
    )
    documents: int = requirement(30, "test documents: the loss depends on which ones they are")
    sweep: float = requirement(SHORTEST_SWEEP, "length of the sweep's runs as a share of the run; a tenth is too short")
    context: int = requirement(512, "C7 and C8: tokens; well beyond the 100 of the claim")


@dataclass(frozen=True)
class Limits:
    """The most it may have."""

    epochs: float = requirement(1, "at the main budget: the paper's laws are for text that is read once")
    epochs_long: float = requirement(
        4, "at longer budgets: repeated text is nearly as good as new up to about four times"
    )


CONDITIONS, LIMITS = Conditions(), Limits()
SAME_SIZES = f"{CONDITIONS.sizes} sizes over {CONDITIONS.decades:g} decades of N"


def missing_conditions(
    evidence: Evidence, *variants: str, size: str | None = None, budgets_of: str = ""
) -> tuple[str, ...]:
    """Conditions that these variants fail.

    `size`: the only one that is compared, for claims that do not compare sizes; `budgets_of`: the variant that is
    compared at all its budgets.
    """
    if missing := [variant for variant in variants if not evidence.trained(variant)]:
        return (f"no {' and no '.join(missing)} was trained",)
    used = cells(evidence, *variants, budgets_of=budgets_of)
    used = used if size is None else used[used["size"] == size]
    main = used[used["multiple"] == 1]
    if main.empty:
        return ("no run at the main budget",)
    found = _sizes(main) if size is None else []
    seeds = int(main.groupby(["variant", "size"])["seed"].nunique().min())
    documents = int(np.nan_to_num(main["test_documents"].astype(float).min()))
    found += [
        f"{seeds} seed at some size (needs {CONDITIONS.seeds})" if seeds < CONDITIONS.seeds else "",
        *_training(used),
        f"{documents} test documents (needs {CONDITIONS.documents})" if documents < CONDITIONS.documents else "",
        edges(used),
        short_sweeps(used),
    ]
    return tuple(text for text in found if text) + precisions(used)


def _sizes(main: pd.DataFrame) -> list[str]:
    groups = [own["n_exact"] for _, own in main.groupby("variant")]
    sizes = min(n.nunique() for n in groups)
    decades = min(float(np.log10(n.max() / n.min())) for n in groups)
    return [
        f"{sizes} size{'s' * (sizes > 1)} (needs {CONDITIONS.sizes})" if sizes < CONDITIONS.sizes else "",
        f"{decades:.2f} decades of N (needs {CONDITIONS.decades:g})" if decades < CONDITIONS.decades else "",
    ]


def _training(used: pd.DataFrame) -> list[str]:
    """Tokens per parameter at the largest N, and epochs; unknown epochs count as too many."""
    main = used[used["multiple"] == 1]
    per_parameter = float((main["tokens"] / main["n_exact"]).groupby(main["variant"]).min().min())
    least = CONDITIONS.tokens_per_parameter
    found = [f"{per_parameter:.0f} training tokens per parameter (needs {least:g})" if per_parameter < least else ""]
    for runs, limit, where in (
        (used[used["multiple"] <= 1], LIMITS.epochs, "the main budget"),
        (used[used["multiple"] > 1], LIMITS.epochs_long, "longer budgets"),
    ):
        most = float(runs["epochs"].max()) if runs["epochs"].notna().all() and len(runs) else np.nan
        if len(runs) and not most <= limit:
            found.append(f"{most:.1f} epochs at {where} (at most {limit:g})")
    return found


def missing_context(main: pd.DataFrame) -> tuple[str, ...]:
    """What C7 and C8 need besides: a long context, and documents that fill it."""
    context = int(main["context"].iloc[0])
    documents = float(np.nan_to_num(main["test_documents"].astype(float).min()))
    length = float(main["test_tokens"].min()) / documents if documents > 0 else 0.0
    found = (
        f"a context of {context} tokens (needs {CONDITIONS.context})" if context < CONDITIONS.context else "",
        f"test documents of {length:,.0f} tokens on average (needs more than the context)" if length <= context else "",
    )
    return tuple(text for text in found if text)


# ----------------------------------------------------------------------------------------------------- the words
def under_conditions(evidence: Evidence, clause: str) -> str:
    """On corpus X (…) <clause>. This bears on …"""
    runs = evidence.main_runs
    n, tokens = runs["n_exact"], runs["tokens"]
    spent = f"{tokens.min():,}" if tokens.nunique() == 1 else f"{tokens.min():,} to {tokens.max():,}"
    return (
        f"On corpus {runs['corpus'].iloc[0]} (vocabulary {runs['vocab'].iloc[0]:,}, context "
        f"{runs['context'].iloc[0]:,}, N from {n.min():,} to {n.max():,}, {spent} tokens) {clause}. {DIRECTION}"
    )


def name(evidence: Evidence, variant: str) -> str:
    """A model as a sentence names it, with the positions that it was trained with where these are a choice."""
    told = NAMES.get(variant, variant)
    runs = evidence.main_runs
    positions = sorted(set(runs.loc[runs["variant"] == variant, "positions"]) - {""})
    if variant != "transformer" or not positions:
        return told
    return f"{told} without positions" if positions == ["none"] else f"{told} with {' and '.join(positions)} positions"
