"""Which claims the finished experiment cannot judge, whatever it measures, as far as the configuration tells.

The gates of direct and of conceptual verdicts (docs/claims.md) are asked about a table of the planned runs. What only
the results tell (test documents, where the optimum of a sweep lies) counts as met.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from lmu_scaling import experiment
from lmu_scaling.analysis.claims.common import Evidence
from lmu_scaling.analysis.claims.judge import all_gates
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import UNTUNED
from lmu_scaling.counting import count
from lmu_scaling.sections import Config

ENOUGH_DOCUMENTS, ENOUGH_TOKENS = 10**6, 10**12


def possible_verdicts(config: Config, kept_tokens: int) -> list[dict[str, Any]]:
    """What each claim that needs training lacks for either verdict; nothing: the verdict is possible.

    `kept_tokens` of the corpus, 0 if unknown.
    """
    found = all_gates(_planned(config, kept_tokens))
    return [{"id": name, **{kind: list(why) for kind, why in gates._asdict().items()}} for name, gates in found.items()]


def _planned(config: Config, kept_tokens: int) -> Evidence:
    empty = pd.DataFrame()
    runs = pd.DataFrame([_row(config, run, kept_tokens) for run in experiment.runs(config)])
    return Evidence(runs, {}, empty, empty, empty, empty, empty, empty, load_paper())


def _row(config: Config, run: experiment.Run, kept_tokens: int) -> dict[str, Any]:
    spec, trained_on = experiment.spec_of(config, run), kept_tokens * config.corpus.split.train
    tuned = experiment.cell_of(config, run) is not None
    return {
        "variant": run.variant,
        "size": run.size,
        "multiple": run.multiple,
        "seed": run.seed,
        "setting": run.setting,
        "excluded": "",
        "positions": "",
        "n_exact": count(spec.model).n_exact,
        "tokens": spec.tokens,
        "epochs": spec.tokens / trained_on if trained_on else 0.0,
        "context": config.models.context,
        "vocab": config.tokens.vocab,
        "corpus": config.corpus.source,
        "test_documents": ENOUGH_DOCUMENTS,
        "test_tokens": ENOUGH_TOKENS,
        "tuning_edge": "" if tuned else UNTUNED,
        "tuning_multiple": config.training.tuning.multiple,
        "precision": "",
    }
