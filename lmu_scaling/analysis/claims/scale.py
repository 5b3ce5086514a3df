"""Direct replication: the scale an experiment needs before a claim about the paper's regime is judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmu_scaling.analysis.claims.common import Evidence, requirement
from lmu_scaling.analysis.table import MAIN


@dataclass(frozen=True)
class Scale:
    """The least an experiment must have before a claim about the paper's regime is judged, each with its reason."""

    sizes: int = requirement(4, "two sizes fix a line; four show whether it is one")
    decades: float = requirement(1.0, "log₁₀ of largest over smallest N; the paper spans 1.26")
    n_max: float = requirement(5e5, "the largest N must reach half of the paper's largest model")
    seeds: int = requirement(2, "one seed has no spread")
    tokens: float = requirement(
        1e9, "a thirteenth of the paper's training tokens: below, data and not N limit the loss"
    )
    sequences: int = requirement(
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


def missing_scale(evidence: Evidence, *variants: str, setting: str = MAIN) -> tuple[str, ...]:
    """What the experiment lacks for a claim that compares sizes of these variants; empty if nothing."""
    runs = evidence.at_main_budget(setting)
    absent = [variant for variant in variants if variant not in set(runs["variant"])]
    if absent:
        return (f"no {' and no '.join(absent)} was trained",)
    groups = [runs[runs["variant"] == variant] for variant in variants]
    sizes = min(own["n_exact"].nunique() for own in groups)
    decades = min(float(np.log10(own["n_exact"].max() / own["n_exact"].min())) for own in groups)
    n_max = min(int(own["n_exact"].max()) for own in groups)
    seeds = min(int(own.groupby("size")["seed"].nunique().min()) for own in groups)
    found = [
        f"{sizes} size{'s' * (sizes > 1)} (needs {SCALE.sizes})" if sizes < SCALE.sizes else "",
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
