"""Do the settings that a manifest records follow from config.json?

A setting is looked up by its name: first in the section of the job's stage, then in the other sections. `runs`,
`models` and `look` are computed from the configuration. Names that no section has (a figure's name, a run's template)
are checked against the files that the job wrote, or by other checks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lmu_scaling import cli, experiment
from lmu_scaling.audit.results_folder import Finding, ResultsFolder
from lmu_scaling.config import validate
from lmu_scaling.errors import UserError
from lmu_scaling.jobs import Job
from lmu_scaling.paper.look import look_of
from lmu_scaling.runtime import canonical_json
from lmu_scaling.sections import Config

SECTIONS = ("evaluation", "analysis", "tokens", "corpus", "paper")
NOT_CONFIGURED = object()


def disagreements(
    folder: ResultsFolder,
    name: str,
    entry: Job,
    arguments: dict[str, Any],
    hints: dict[str, Any],
    outputs: Sequence[str],
) -> Iterator[Finding]:
    """Settings that are not those of the configuration."""
    if not folder.config:
        return  # the check of runs says that it is missing
    try:
        config = validate(folder.config, "config.json")
    except UserError:
        return
    for key, value in arguments.items():
        expected = NOT_CONFIGURED if cli.role(hints[key]) else expected_setting(config, entry, key)
        if expected is not NOT_CONFIGURED and not _equal(value, expected):
            what = f"its job ran with {key} = {value!r}, but config.json says {expected!r}"
            yield Finding("settings", name, what[:500])
    if "name" in arguments and any(Path(output).name.split(".")[0] != arguments["name"] for output in outputs):
        yield Finding("settings", name, f"shows {arguments['name']!r} under another name")


def expected_setting(config: Config, entry: Job, key: str) -> Any:
    if key == "runs":
        return [run.name for run in experiment.runs(config)]
    if key == "look":
        return look_of(config)
    if key == "models":
        cells = dict.fromkeys((run.variant, run.size) for run in experiment.runs(config))
        return {f"{v}-{s}": experiment.model_spec(config, v, s) for v, s in cells}
    if key == "config":
        return json.loads(canonical_json(config.model_dump()))
    if key == "tokens" and entry.stage == "tokens":
        return config.tokens
    for section in (entry.stage, *SECTIONS):
        found = getattr(config, section, None)
        if found is not None and key in type(found).model_fields:
            return getattr(found, key)
    return NOT_CONFIGURED


def _equal(value: Any, expected: Any) -> bool:
    if is_dataclass(value) and isinstance(expected, dict):
        expected = TypeAdapter(type(value)).validate_python(expected)
    return bool(value == expected)
