"""The identity of a training run.

A spec (`spec.json`) holds everything that decides a run's result and nothing else: device, micro-batch, number of GPUs,
labels and colours are not in it. Its hash is the run's identity; checkpoints carry it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ModelError, ResultsError
from lmu_scaling.models import ModelSpec
from lmu_scaling.runtime import canonical_json, read_json, sha256_bytes, write_json

FORMAT = 2
NUMBER = r"[0-9.]+(?:e[+-]\d+)?"  # as %g writes it
MAIN, PAPER_RECIPE = "main", "paper"
TAIL = r"(?:s\d+(?:-[a-z][a-z0-9_]*)?|t\d+)"  # of a run's name
RUN_NAME = re.compile(
    rf"(?P<variant>\w+)-(?P<size>[A-Za-z0-9.]+)-x(?P<multiple>{NUMBER})-"
    r"(?:s(?P<seed>\d+)(?:-(?P<setting>[a-z][a-z0-9_]*))?|t(?P<trial>\d+))"
)


@dataclass(frozen=True)
class Run:
    """One training: a variant at a size for a token budget, with a seed; or one trial of a sweep."""

    variant: str
    size: str
    multiple: float
    seed: int
    setting: str = MAIN
    """`main`; `paper` for the paper's own recipe; or the name of an alternative (training.alternatives)."""
    trial: int | None = None
    """Number of the sweep run in its cell, from 1; None for runs that are evaluated."""

    @property
    def name(self) -> str:
        tail = f"s{self.seed}" if self.trial is None else f"t{self.trial}"
        setting = "" if self.setting == MAIN else f"-{self.setting}"
        return f"{self.variant}-{self.size}-x{self.multiple:g}-{tail}{setting}"


def parse_run(name: str) -> Run:
    """The inverse of `Run.name`; a sweep run's seed is not part of its name and comes back as 0."""
    match = RUN_NAME.fullmatch(name)
    if match is None:
        raise ResultsError(f"not the name of a run: {name!r}", "run names", "names look like lmu-55k-x1-s0")
    return Run(
        match["variant"],
        match["size"],
        float(match["multiple"]),
        int(match["seed"] or 0),
        match["setting"] or MAIN,
        int(match["trial"]) if match["trial"] else None,
    )


@dataclass(frozen=True)
class DataSpec:
    """What decides the token stream: the corpus and a hash of its settings."""

    corpus: str
    settings: str


@dataclass(frozen=True)
class PlateauSpec:
    """Reduce on plateau: multiply the rate by `factor` after `patience` validations without a fall of `min_delta`."""

    factor: float
    patience: int
    min_delta: float


@dataclass(frozen=True)
class TrainingSpec:
    """Optimisation: batch [sequences], steps, seed, Adam, schedule, validation."""

    batch: int
    steps: int
    seed: int
    learning_rate: float | None
    """Peak rate; None until the sweep has been judged (recipe `tuned`)."""
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    clip: float | None
    warmup: float
    """Share of the steps."""
    plateau: PlateauSpec | None
    validate_every: int
    validation_sequences: int


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides the result of one training run."""

    model: ModelSpec
    data: DataSpec
    training: TrainingSpec
    format: int = FORMAT

    @property
    def hash(self) -> str:
        return sha256_bytes(canonical_json(self.asdict()).encode())[:16]

    @property
    def tokens(self) -> int:
        """Tokens the run trains on."""
        return self.training.steps * self.training.batch * self.model.context

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def tuned(self, learning_rate: float | None = None, embedding_scale: float | None = None) -> RunSpec:
        """With these values where they are given."""
        model, training = self.model, self.training
        if embedding_scale is not None:
            model = dataclasses.replace(model, embedding_scale=embedding_scale)
        if learning_rate is not None:
            training = dataclasses.replace(training, learning_rate=learning_rate)
        return dataclasses.replace(self, model=model, training=training)

    def write(self, path: Path) -> None:
        write_json(path, self.asdict())

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        return cls.from_dict(read_json(path), str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "spec.json") -> RunSpec:
        try:
            training = dict(values["training"])
            if training["plateau"] is not None:
                training["plateau"] = PlateauSpec(**training["plateau"])
            training["betas"] = tuple(training["betas"])
            return cls(
                ModelSpec.from_dict(values["model"]),
                DataSpec(**values["data"]),
                TrainingSpec(**training),
                values["format"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, ModelError) as error:
            raise ResultsError(
                f"not the spec of a run: {error}",
                where,
                f"restore it from a copy, or make it again: snakemake --cores all --forcerun {where}",
            ) from error
