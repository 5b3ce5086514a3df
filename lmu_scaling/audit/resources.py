"""What a scheduler must reserve for each job: the planner's numbers as `mem_mb`, `runtime` and `gpu`.

The first device in `plan.accelerators` is the one an experiment is made for: if it is a GPU, jobs that compute on it
ask for one. Reserved memory grows with the attempt, so that a job that ran out of it comes back with more; time does
not, because a job that ran out of time resumes; nor is more of it asked for than the scheduler's partitions grant.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmu_scaling import experiment
from lmu_scaling.audit import estimate
from lmu_scaling.audit.plan import EVALUATE_SECONDS, TEXT_PER_SECOND
from lmu_scaling.config import CATALOG
from lmu_scaling.counting import count
from lmu_scaling.sections import Config
from lmu_scaling.spec import Run

# Two Snakemake processes stand around the command of a submitted job, in the same reservation.
ENGINE_MB = 500
# No job asks for more than two days, which most sites grant: a longer run is stopped, and resumes (retries).
LONGEST_MINUTES = 2 * 24 * 60
# A GPU evaluates no faster than it is fed; half of what training reaches is on the safe side.
EVALUATION_SHARE = 0.5


@dataclass(frozen=True)
class Partition:
    """A queue of a scheduler: the longest time and the most GPUs that it gives to one job."""

    minutes: float
    gpus: int


class Needs:
    """The needs of every job of one experiment; `partitions` is asked when the first job is about to be submitted."""

    def __init__(self, config: Config, partitions: Callable[[], Sequence[Partition]] = list) -> None:
        self.config, self.partitions = config, partitions
        self.device = config.plan.accelerators[0]
        self.runs = {run.name: run for run in (*experiment.runs(config), *experiment.sweeps(config))}

    @property
    def gpu(self) -> int:
        """GPUs of a job that computes on the experiment's device."""
        return int(estimate.is_gpu(self.device))

    def train(self, name: str) -> dict[str, int]:
        return self._training[name]

    @functools.cached_property
    def _training(self) -> dict[str, dict[str, int]]:
        return {name: self._reserve(run) for name, run in self.runs.items()}

    def _reserve(self, run: Run) -> dict[str, int]:
        needed = estimate.training_resources(experiment.spec_of(self.config, run), self.device)
        return {
            "mem_mb": needed["mem_mb"] + ENGINE_MB,
            "runtime": min(needed["runtime"], self._longest(needed["gpu"])),
            "gpu": needed["gpu"],
        }

    def evaluate_minutes(self, name: str) -> int:
        run, config = self.runs[name], self.config
        tokens = estimate.evaluated_sequences(config, self.data) * config.models.context
        flops = tokens * count(experiment.model_spec(config, run.variant, run.size)).flops_with_head
        speed = EVALUATION_SHARE * self.device.tflops * 1e12 * self.device.utilisation
        return self._minutes(EVALUATE_SECONDS + flops / speed, self.gpu)

    def text_minutes(self, rule: str, jobs: int = 1) -> int:
        """A job that reads 1/jobs of the text."""
        return self._minutes(self.data.text_bytes / jobs / TEXT_PER_SECOND[rule], 0)

    def deduplicate_mb(self) -> int:
        return estimate.deduplicate_mb(self.data)

    @functools.cached_property
    def data(self) -> estimate.Data:
        return estimate.corpus(self.config, CATALOG / "datasets.yaml")

    def _minutes(self, seconds: float, gpu: int) -> int:
        return min(self._longest(gpu), max(estimate.LEAST_MINUTES, math.ceil(estimate.SAFETY * seconds / 60)))

    def _longest(self, gpu: int) -> int:
        """Two days, or what the partitions with GPUs grant (without, for a job that needs none) if that is less."""
        partitions = self.partitions()
        fitting = [each.minutes for each in partitions if bool(each.gpus) == bool(gpu)]
        granted = fitting or [each.minutes for each in partitions]
        return int(min(LONGEST_MINUTES, max(granted, default=LONGEST_MINUTES)))
