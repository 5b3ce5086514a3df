"""The identity of a training run.

A spec (`spec.json`) holds all that decides a run's result and nothing else: device, micro-batch, number of GPUs,
labels and colours are not in it. Its hash is the run's identity; checkpoints carry it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lmu_scaling.errors import ResultsError
from lmu_scaling.runtime import canonical_json, sha256_bytes

FORMAT = 1
NUMBER = r"[0-9.]+(?:e[+-]\d+)?"  # as %g writes it
RUN_NAME = re.compile(
    rf"(?P<variant>\w+)-(?P<size>[A-Za-z0-9.]+)-x(?P<multiple>{NUMBER})-(?:s(?P<seed>\d+)|lr(?P<rate>{NUMBER}))"
)


@dataclass(frozen=True)
class Run:
    """One training: a variant at a size for a token budget, with a seed; or one run of a learning-rate sweep."""

    variant: str
    size: str
    multiple: float
    seed: int
    learning_rate: float | None = None  # set for sweep runs only

    @property
    def name(self) -> str:
        tail = f"s{self.seed}" if self.learning_rate is None else f"lr{self.learning_rate:g}"
        return f"{self.variant}-{self.size}-x{self.multiple:g}-{tail}"


def parse_run(name: str) -> Run:
    """The inverse of `Run.name`; a sweep run's seed is not part of its name and comes back as 0."""
    match = RUN_NAME.fullmatch(name)
    if match is None:
        raise ResultsError(f"not the name of a run: {name!r}", "run names", "names look like lmu-55k-x1-s0")
    rate = match["rate"]
    return Run(
        match["variant"],
        match["size"],
        float(match["multiple"]),
        int(match["seed"] or 0),
        float(rate) if rate else None,
    )


def spec_hash(spec: dict[str, Any]) -> str:
    return sha256_bytes(canonical_json(spec).encode())[:16]


def tokens_of(spec: dict[str, Any]) -> int:
    """Tokens a run trains on."""
    return int(spec["training"]["steps"] * spec["training"]["batch"] * spec["model"]["context"])
