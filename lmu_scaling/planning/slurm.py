"""What Snakemake's SLURM executor needs to outlive an outage of SLURM and to keep to the site's limit of arrays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

AFFECTS_RESULTS = False


def keep_unanswered(executor: Any) -> None:
    """By itself it forgets its jobs, and waits for ever, when SLURM has not answered a round of questions."""
    ask = executor.check_active_jobs

    async def check_active_jobs(self: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        # Snakemake's thread may ask, without jobs, before the executor is set up. An error there would end the thread
        # without a message, and Snakemake would wait for ever.
        answers = getattr(self, "_status_query_calls", None)
        async for job in ask(self, active_jobs):
            yield job
        if active_jobs and self._status_query_calls == answers:
            for job in active_jobs:
                yield job

    executor.check_active_jobs = check_active_jobs


def split_arrays(executor: Any) -> None:
    """It numbers the tasks of a second array on from the first; SLURM refuses numbers beyond its limit."""
    submit = executor.run_array_jobs

    def run_array_jobs(self: Any, jobs: list[Any]) -> None:
        for first in range(0, len(jobs), self.max_array_size):
            submit(self, jobs[first : first + self.max_array_size])

    executor.run_array_jobs = run_array_jobs
