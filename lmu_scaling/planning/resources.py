"""What each job reserves from the scheduler: the cost model's numbers as `mem_mb`, `runtime` and `gpu`.

Jobs reserve resources for the first device in `plan.accelerators`. Memory grows with the attempt, so that a job that
ran out of memory gets more. Time does not grow, because a job that ran out of time resumes, and it never exceeds the
limits of the scheduler's partitions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmu_scaling import experiment
from lmu_scaling.planning import cost_model
from lmu_scaling.sections import Config

# Two Snakemake processes surround the command of a submitted job, within the same reservation.
ENGINE_MB = 500
# No job reserves more than two days, which most sites grant: a longer run is stopped and resumes (retries).
LONGEST_MINUTES = 2 * 24 * 60
# For the last checkpoint, before a time limit of eight minutes or more; a quarter of a shorter one.
WARNING_SECONDS = 120
# Evaluation is assumed to reach half the throughput of training: it may wait for data.
EVALUATION_SHARE = 0.5


@dataclass(frozen=True)
class Partition:
    """Limits of a scheduler's partition: time and GPUs of one job."""

    minutes: float
    gpus: int


class JobResources:
    """Resources of every job of one experiment; `partitions` is called when the first job is about to be submitted."""

    def __init__(self, config: Config, partitions: Callable[[], Sequence[Partition]] = list) -> None:
        self.config, self.partitions = config, partitions
        self.device = config.plan.accelerators[0]
        self.runs = {run.name: run for run in (*experiment.runs(config), *experiment.sweeps(config))}

    @property
    def gpu(self) -> int:
        """Number of GPUs of a job that computes on the first accelerator."""
        return int(self.device.kind == "gpu")

    @functools.cache  # noqa: B019 (one object per workflow)
    def train(self, name: str) -> dict[str, int]:
        cost = cost_model.training_cost(experiment.spec_of(self.config, self.runs[name]))
        needed = cost_model.training_resources(cost, self.device)
        return {
            "mem_mb": needed["mem_mb"] + ENGINE_MB,
            "runtime": min(needed["runtime"], self._time_limit(needed["gpu"])),
            "gpu": needed["gpu"],
        }

    def warning(self, name: str) -> str:
        """An option for SLURM: send TERM two minutes before the time limit, or less before a short one."""
        if not self.partitions():
            return ""
        return f"--signal=TERM@{min(WARNING_SECONDS, 15 * self.train(name)['runtime'])}"

    def evaluate_minutes(self, name: str) -> int:
        seconds = cost_model.evaluation_seconds(self.config, self.corpus, self.runs[name], self.device)
        return self._minutes(seconds / EVALUATION_SHARE, self.gpu)

    def text_minutes(self, rule: str, jobs: int = 1) -> int:
        """Time of a job that reads 1/jobs of the text."""
        return self._minutes(self.corpus.text_bytes / jobs / cost_model.TEXT_PER_SECOND[rule], 0)

    def deduplicate_mb(self) -> int:
        return cost_model.deduplicate_mb(self.config, self.corpus)

    @functools.cached_property
    def corpus(self) -> cost_model.CorpusSize:
        return cost_model.corpus_size(self.config)

    def _minutes(self, seconds: float, gpu: int) -> int:
        return min(self._time_limit(gpu), cost_model.reserved_minutes(seconds))

    def _time_limit(self, gpu: int) -> int:
        """Two days, or less if the partitions with GPUs (without, for a job that needs none) grant less."""
        partitions = self.partitions()
        fitting = [each.minutes for each in partitions if bool(each.gpus) == bool(gpu)]
        granted = fitting or [each.minutes for each in partitions]
        return int(min(LONGEST_MINUTES, max(granted, default=LONGEST_MINUTES)))
