"""The changes to Snakemake's SLURM executor, on one that is pretended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lmu_scaling.planning.slurm import keep_unanswered, split_arrays


def make() -> Any:
    class Executor:
        max_array_size = 3

        def __init__(self) -> None:
            self.submitted: list[list[int]] = []

        async def check_active_jobs(self, active_jobs: list[int]) -> AsyncIterator[int]:
            """As the plugin's: nothing is yielded when SLURM does not answer."""
            if active_jobs and self.answers:
                self._status_query_calls += 1
                for job in active_jobs[1:]:  # the first has ended
                    yield job

        def run_array_jobs(self, jobs: list[int]) -> None:
            self.submitted.append(jobs)

    return Executor


def still_active(executor: Any, jobs: list[int]) -> list[int]:
    async def listed() -> list[int]:
        return [job async for job in executor.check_active_jobs(jobs)]

    return asyncio.run(listed())


@pytest.mark.parametrize(("answers", "kept"), [(True, [2, 3]), (False, [1, 2, 3])])
def test_jobs_are_kept_when_slurm_does_not_answer_and_only_then(answers: bool, kept: list[int]) -> None:
    executor_class = make()
    keep_unanswered(executor_class)
    executor = executor_class()
    executor.answers, executor._status_query_calls = answers, 4
    assert still_active(executor, [1, 2, 3]) == kept


def test_an_executor_that_is_not_set_up_yet_can_be_asked() -> None:
    """Snakemake's thread asks for the first time after a fixed pause, however long the set-up takes."""
    executor_class = make()
    keep_unanswered(executor_class)
    assert still_active(executor_class(), []) == []


def test_large_arrays_are_submitted_in_parts_that_begin_anew() -> None:
    executor_class = make()
    split_arrays(executor_class)
    executor = executor_class()
    executor.run_array_jobs([1, 2, 3, 4, 5, 6, 7])
    assert executor.submitted == [[1, 2, 3], [4, 5, 6], [7]]
