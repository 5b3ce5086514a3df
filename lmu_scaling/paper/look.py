"""What figures and tables take from the configuration: the names in the footer, and the marks of the variants."""

from __future__ import annotations

from typing import Any

from lmu_scaling.sections import Config


def look_of(config: Config) -> dict[str, Any]:
    """The settings of `style.Look`, as JSON."""
    return {
        "experiment": config.experiment,
        "corpus": config.corpus.source,
        "tokens": config.training.steps * config.training.batch * config.models.context,
        "marks": {name: look.model_dump() for name, look in config.paper.looks.items()},
    }
