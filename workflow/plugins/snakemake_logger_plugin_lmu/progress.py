"""How far the workflow is, from Snakemake's events and from the live logs of the runs that train."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from lmu_scaling.runtime import duration
from lmu_scaling.training.status import RunStatus, run_status

TRAIN = "train"


@dataclass
class RunningJob:
    """A job that was started."""

    id: int
    rule: str
    name: str
    folder: Path | None
    """training/<run>, for a job that trains."""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @classmethod
    def of(cls, facts: dict[str, Any]) -> RunningJob:
        rule, outputs = facts["rule_name"], facts.get("output") or []
        folder = Path(str(outputs[0]).split(" ")[0]).parent if rule == TRAIN and outputs else None
        name = " ".join(str(value) for value in (facts.get("wildcards") or {}).values())
        return cls(facts["jobid"], rule, name, folder)

    @property
    def title(self) -> str:
        return f"{self.rule} {self.name}".rstrip()

    def status(self) -> RunStatus | None:
        return None if self.folder is None else run_status(self.folder)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started


class WorkflowProgress:
    """Jobs planned, running and finished. Snakemake's events and the display use it from different threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.done = self.total = self.failed = 0
        self.cores = 1
        self.planned: Counter[str] = Counter()
        self.running: dict[int, RunningJob] = {}
        self.durations: dict[str, list[float]] = defaultdict(list)

    def plan(self, stats: dict[str, int]) -> str:
        with self.lock:
            self.planned = Counter({rule: count for rule, count in stats.items() if rule != "total"})
            self.total = sum(self.planned.values())
        most = [f"{count} {rule}" for rule, count in self.planned.most_common(4)]
        more = ", …" if len(self.planned) > len(most) else ""
        return f"{self.total} jobs: {', '.join(most)}{more}"

    def start(self, job: RunningJob) -> None:
        with self.lock:
            self.running[job.id] = job

    def finish(self, number: int) -> RunningJob | None:
        with self.lock:
            job = self.running.pop(number, None)
            if job is not None:
                job.seconds = job.elapsed
                self.durations[job.rule].append(job.seconds)
                self.done += 1
            return job

    def fail(self, number: int) -> None:
        with self.lock:
            self.running.pop(number, None)
            self.failed += 1

    def seconds_left(self, statuses: dict[int, RunStatus | None]) -> float | None:
        """Jobs that are left, each as long as the mean of its rule, shared by the cores; None while that is a guess."""
        with self.lock:
            expected = {rule: mean(times) for rule, times in self.durations.items() if times}
            going = [
                self.running[number].elapsed + status.seconds_left
                for number, status in statuses.items()
                if number in self.running and status is not None and status.seconds_left is not None
            ]
            if going:
                expected[TRAIN] = mean([*self.durations.get(TRAIN, []), *going])
            if not expected or (self.planned[TRAIN] and TRAIN not in expected):
                return None
            other = mean(expected.values()) if TRAIN not in expected else min(expected.values())
            left = 0.0
            for rule, count in self.planned.items():
                left += (count - len(self.durations.get(rule, []))) * expected.get(rule, other)
            left -= sum(min(job.elapsed, expected.get(job.rule, other)) for job in self.running.values())
            return max(0.0, left / max(1, min(self.cores, max(1, self.total - self.done))))


def validation_loss(job: RunningJob) -> str:
    status = job.status()
    known = status is not None and status.validation_loss is not None
    return f"validation loss {status.validation_loss:.3f}" if known else ""


def finished_line(job: RunningJob) -> str:
    return f"{job.title}: {', '.join(filter(None, (duration(job.seconds), validation_loss(job))))}"
