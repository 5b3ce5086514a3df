"""Reservations follow from the work: bigger runs reserve more time, GPUs only where the experiment is made for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmu_scaling.audit.estimate import LEAST_MINUTES
from lmu_scaling.audit.resources import LONGEST_MINUTES, Needs, Partition
from lmu_scaling.config import load

ROOT = Path(__file__).resolve().parents[2]


def needs(preset: str | None) -> Needs:
    return Needs(load(ROOT / "config.yaml", *([ROOT / f"workflow/presets/{preset}.yaml"] if preset else [])))


@pytest.mark.parametrize(("preset", "gpu"), [(None, 0), ("smoke", 0), ("single_gpu", 1), ("paper", 1)])
def test_gpus_are_asked_for_only_by_experiments_made_for_them(preset: str | None, gpu: int) -> None:
    found = needs(preset)
    assert found.gpu == gpu
    assert {found.train(name)["gpu"] for name in found.runs} == {gpu}


def test_time_grows_with_size_and_with_tokens() -> None:
    found = needs("paper")
    sizes = [found.train(f"lmu-{size}-x1-s1")["runtime"] for size in ("55k", "200k", "1M")]
    budgets = [found.train(f"transformer-55k-x{multiple}-s1")["runtime"] for multiple in (1, 2, 5)]
    assert sizes == sorted(set(sizes)) and budgets == sorted(set(budgets))


@pytest.mark.parametrize("preset", [None, "smoke", "single_gpu", "paper"])
def test_every_reservation_is_one_that_a_scheduler_accepts(preset: str | None) -> None:
    found = needs(preset)
    for name in found.runs:
        wanted = found.train(name)
        assert all(isinstance(value, int) for value in wanted.values())
        assert LEAST_MINUTES <= wanted["runtime"] <= LONGEST_MINUTES
        assert 1000 <= wanted["mem_mb"] <= 64000
        assert LEAST_MINUTES <= found.evaluate_minutes(name) <= LONGEST_MINUTES
    for rule in ("filter", "deduplicate", "tokenise", "tokens_manifest"):
        assert LEAST_MINUTES <= found.text_minutes(rule) <= LONGEST_MINUTES
    assert found.deduplicate_mb() >= 1000


def test_no_job_asks_for_more_time_than_its_partitions_grant() -> None:
    """Otherwise the job waits for ever, or is sent to a partition without GPUs."""
    config = load(ROOT / "config.yaml", ROOT / "workflow/presets/paper.yaml")
    short, long, gpus = Partition(600, 0), Partition(5000, 0), Partition(720, 2)
    found = Needs(config, lambda: [short, long, gpus])
    assert found.train("transformer-1M-x10-s1")["runtime"] == 720
    assert found.text_minutes("filter") == needs("paper").text_minutes("filter") < 600
    assert Needs(config, lambda: [Partition(5, 0), gpus]).text_minutes("filter") == 5
    assert Needs(config, lambda: [gpus]).text_minutes("filter") < 720, "a cluster of GPU nodes only"
    assert Needs(config, lambda: [Partition(float("inf"), 8)]).train("transformer-1M-x10-s1")["runtime"] == 2880
