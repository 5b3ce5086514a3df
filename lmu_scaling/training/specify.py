"""Write a run's spec.json: the template from the configuration plus, in recipe `tuned`, the learning rate found."""

from __future__ import annotations

import math

from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Input, Inputs, Output, job
from lmu_scaling.runtime import read_json, write_json
from lmu_scaling.spec import RunSpec


@job
def specify(template: RunSpec, out: Output, tuning: Input | None = None) -> None:
    """Write the spec.json of a run.

    Args:
        template: the spec; its learning rate may be null
        tuning: result of the learning-rate sweep
        out: spec.json
    """
    spec = template if tuning is None else template.with_learning_rate(read_json(tuning)["learning_rate"])
    spec.write(out)


@job
def tune(results: Inputs, variant: str, size: str, out: Output) -> None:
    """Choose a learning rate: the lowest validation loss of a sweep, flagged if it lies on the sweep's edge.

    Args:
        results: result.json of each sweep run
        variant: model variant
        size: model size
        out: where the chosen learning rate is written
    """
    trials = []
    for path in results:
        result = read_json(path)
        loss = None if result["diverged"] else result["validation_loss"]
        trials.append(
            {"learning_rate": result["learning_rate"], "validation_loss": loss, "diverged": result["diverged"]}
        )
    trials.sort(key=lambda trial: trial["learning_rate"])
    losses = [math.inf if trial["validation_loss"] is None else trial["validation_loss"] for trial in trials]
    best = min(range(len(trials)), key=losses.__getitem__)
    if math.isinf(losses[best]):
        raise ResultsError(
            f"every learning rate of the sweep diverged for {variant} at size {size}",
            str(out),
            "add smaller values to training.tuning.learning_rates",
        )
    write_json(
        out,
        {
            "variant": variant,
            "size": size,
            "learning_rate": trials[best]["learning_rate"],
            "on_edge": best in (0, len(trials) - 1),
            "trials": trials,
        },
    )
