"""Decisions where the paper is silent or ambiguous, with their values in this experiment's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmu_scaling.paper.decisions import SECTIONS
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Code, Table
from lmu_scaling.runtime import read_json

INPUTS = ("config.json",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    config = read_json(inputs["config.json"])
    body = tuple(
        (d.item, d.paper, d.ours, d.why, Code(d.key), Code(_value(config, d.key)))
        for decisions in SECTIONS.values()
        for d in decisions
    )
    return Table(
        "Decisions where the paper is silent, ambiguous or wrong",
        ("Item", "The paper", "Here", "Why", "Where to change it", "Value"),
        body,
        widths={0: 2.3, 1: 2.9, 2: 5.4, 3: 5.2, 4: 2.9, 5: 2.3},
        breakable=True,
    )


def _value(config: Any, key: str) -> str:
    """The configured value; empty if the key names a file or a section."""
    if "/" in key:
        return ""
    for part in key.split("."):
        if isinstance(config, list):
            found = {str(entry.get(part)) for entry in config if entry.get(part) is not None}
            return ", ".join(sorted(found)) or "by rule"
        if not isinstance(config, dict) or part not in config:
            return ""
        config = config[part]
    if isinstance(config, dict):
        return ""
    if isinstance(config, list):
        return ", ".join(str(e.get("name", "")) if isinstance(e, dict) else str(e) for e in config) or "none"
    return json.dumps(config) if isinstance(config, bool | type(None)) else str(config)
