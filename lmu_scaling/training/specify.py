"""Write a run's spec.json: the template from the configuration plus what the sweep found (recipe `tuned`)."""

from __future__ import annotations

import math
from typing import Any

from lmu_scaling.jobs import Input, Inputs, Output, job
from lmu_scaling.runtime import read_json, write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.training.search import Steps, Trial, best_trial, edges, next_point


@job
def specify(
    template: RunSpec,
    out: Output,
    tuning: Input | None = None,
    fixed: list[str] | None = None,
    earlier: Inputs | None = None,
    learning_rate_step: float | None = None,
    embedding_scale_step: float | None = None,
) -> None:
    """Write the spec.json of a run.

    Args:
        template: the spec; its learning rate may be null
        tuning: result of the sweep that gives learning rate and embedding scale
        fixed: names of values that are not taken from the sweep
        earlier: result.json of the earlier runs of a sweep, which decide where this sweep run lies
        learning_rate_step: factor between neighbouring sweep runs
        embedding_scale_step: the same; null if the embedding scale is fixed
        out: spec.json
    """
    found: dict[str, float] = {}
    if earlier:
        assert learning_rate_step is not None
        steps = Steps(learning_rate_step, embedding_scale_step)
        rate, scale = next_point([trial_of(read_json(path)) for path in earlier], steps, str(out))
        found = {"learning_rate": rate, "embedding_scale": scale}
    elif tuning is not None:
        chosen = read_json(tuning)
        found = {key: chosen[key] for key in ("learning_rate", "embedding_scale")}
    template.tuned(**{key: value for key, value in found.items() if key not in (fixed or [])}).write(out)


@job
def tune(
    results: Inputs,
    cell: str,
    multiple: float,
    learning_rate_step: float,
    embedding_scale_step: float | None,
    out: Output,
) -> None:
    """Choose learning rate and embedding scale: the sweep run with the lowest validation loss.

    An axis on which no run lies beyond the optimum, on either side, is listed in `edges`.

    Args:
        results: result.json of each sweep run
        cell: variant, size and budget, for messages
        multiple: length of the sweep runs, relative to the run that is tuned
        learning_rate_step: factor between neighbouring sweep runs
        embedding_scale_step: the same; null if the embedding scale is fixed
        out: where the chosen values are written
    """
    trials = [trial_of(read_json(path)) for path in results]
    best = best_trial(trials, f"sweep of {cell}")
    listed = [
        {
            "learning_rate": trial.learning_rate,
            "embedding_scale": trial.embedding_scale,
            "validation_loss": None if math.isinf(trial.loss) else trial.loss,
            "diverged": math.isinf(trial.loss),
        }
        for trial in trials
    ]
    found = {
        "cell": cell,
        "multiple": multiple,
        "learning_rate": best.learning_rate,
        "embedding_scale": best.embedding_scale,
        "edges": edges(trials, Steps(learning_rate_step, embedding_scale_step), cell),
        "trials": listed,
    }
    write_json(out, found)


def trial_of(result: dict[str, Any]) -> Trial:
    """A sweep run from its result.json."""
    loss = math.inf if result["diverged"] else result["validation_loss"]
    return Trial(result["learning_rate"], result["embedding_scale"], loss)
