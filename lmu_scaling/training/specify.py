"""Write a run's spec.json: the template from the configuration plus, in recipe `tuned`, the learning rate found."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ResultsError
from lmu_scaling.runtime import read_json, write_json


def specify(template: str, out: Path, tuning: Path | None = None) -> None:
    spec: dict[str, Any] = json.loads(template)
    if tuning is not None:
        spec["training"]["learning_rate"] = read_json(tuning)["learning_rate"]
    write_json(out, spec)


def tune(results: list[Path], variant: str, size: str, out: Path) -> None:
    """Judge a sweep: the learning rate with the lowest validation loss, and whether it lies on the sweep's edge."""
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
