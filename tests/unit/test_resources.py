"""Job resources: bigger runs reserve more time, and GPUs are reserved only if the first accelerator is one."""

from __future__ import annotations

import pytest

from lmu_scaling.config import load
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.planning.cost_model import LEAST_MINUTES
from lmu_scaling.planning.refusals import refusal
from lmu_scaling.planning.resources import LONGEST_MINUTES, JobResources, Partition
from lmu_scaling.sections import Plan


def resources(preset: str | None) -> JobResources:
    return JobResources(
        load(REPOSITORY / "config.yaml", *([REPOSITORY / f"workflow/presets/{preset}.yaml"] if preset else []))
    )


@pytest.mark.parametrize(("preset", "gpu"), [(None, 0), ("smoke", 0), ("single_gpu", 1), ("paper", 1)])
def test_gpus_are_reserved_only_if_the_first_accelerator_is_one(preset: str | None, gpu: int) -> None:
    found = resources(preset)
    assert found.gpu == gpu
    assert {found.train(name)["gpu"] for name in found.runs} == {gpu}


@pytest.mark.parametrize(("name", "kind", "gpu"), [("GH200 with a CPU", "gpu", 1), ("fast processor", "cpu", 0)])
def test_the_kind_of_a_device_decides_and_not_its_name(name: str, kind: str, gpu: int) -> None:
    device = {"name": name, "kind": kind, "tflops": 1.0, "utilisation": 0.1, "memory_gb": 8.0}
    config = resources(None).config.model_copy(update={"plan": Plan.model_validate({"accelerators": [device]})})
    found = JobResources(config)
    assert found.gpu == found.train(next(iter(found.runs)))["gpu"] == gpu


def test_time_grows_with_size_and_with_tokens() -> None:
    found = resources("paper")
    sizes = [found.train(f"lmu-{size}-x1-s1")["runtime"] for size in ("55k", "200k", "1M")]
    budgets = [found.train(f"transformer-55k-x{multiple}-s1")["runtime"] for multiple in (1, 2, 5)]
    assert sizes == sorted(set(sizes)) and budgets == sorted(set(budgets))


@pytest.mark.parametrize("preset", [None, "smoke", "single_gpu", "paper"])
def test_every_reservation_is_one_that_a_scheduler_accepts(preset: str | None) -> None:
    found = resources(preset)
    for name in found.runs:
        wanted = found.train(name)
        assert all(isinstance(value, int) for value in wanted.values())
        assert LEAST_MINUTES <= wanted["runtime"] <= LONGEST_MINUTES
        assert 1000 <= wanted["mem_mb"] <= 64000
        assert LEAST_MINUTES <= found.evaluate_minutes(name) <= LONGEST_MINUTES
    for rule in ("encode", "deduplicate", "shard", "index"):
        assert LEAST_MINUTES <= found.text_minutes(rule) <= LONGEST_MINUTES
    assert found.deduplicate_mb() >= 1000


def test_no_job_reserves_more_time_than_its_partitions_grant() -> None:
    """Otherwise the job waits forever, or is sent to a partition without GPUs."""
    config = load(REPOSITORY / "config.yaml", REPOSITORY / "workflow/presets/paper.yaml")
    short, long, gpus = Partition(600, 0), Partition(5000, 0), Partition(720, 2)
    found = JobResources(config, lambda: [short, long, gpus])
    assert found.train("transformer-1M-x10-s1")["runtime"] == 720
    assert found.text_minutes("encode") == resources("paper").text_minutes("encode") < 600
    assert JobResources(config, lambda: [Partition(5, 0), gpus]).text_minutes("encode") == 5
    assert JobResources(config, lambda: [gpus]).text_minutes("encode") < 720, "a cluster of GPU nodes only"
    assert JobResources(config, lambda: [Partition(float("inf"), 8)]).train("transformer-1M-x10-s1")["runtime"] == 2880


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 15), (8, 120), (2880, 120)])
def test_the_warning_comes_before_the_time_limit_and_not_at_the_start(minutes: int, seconds: int) -> None:
    found = JobResources(resources(None).config, lambda: [Partition(minutes, 0)])
    assert found.warning(next(iter(found.runs))) == f"--signal=TERM@{seconds}"


def test_without_slurm_there_is_no_warning() -> None:
    found = resources(None)
    assert found.warning(next(iter(found.runs))) == ""


@pytest.mark.parametrize(
    ("said", "where", "what"),
    [
        ("invalid partition specified: nowhere", "partitions.yaml", "sinfo"),
        ("Invalid partition name specified", "partitions.yaml", "sinfo"),
        ("Invalid account or account/partition combination specified", "profile.yaml", "slurm_account"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "partitions.yaml", "max_runtime"),
        ("Invalid generic resource (gres) specification", "profile.yaml", "gpu_model"),
        ("Requested node configuration is not available", "partitions.yaml", "max_mem_mb"),
        ("Job violates accounting/QOS policy (job submit limit, user's size)", "profile.yaml", "QOS"),
        ("Unable to contact slurm controller (connect failure)", "profile.yaml", "wait"),
        ("Something new", "profile.yaml", "correct what the message says"),
    ],
)
def test_each_refusal_of_slurm_names_the_line_to_change(said: str, where: str, what: str) -> None:
    found = refusal(f"The error message was 'sbatch: error: Batch job submission failed: {said}'.\n")
    assert found is not None and found.where == f"profiles/slurm/{where}"
    assert what in found.remedy and len(str(found).splitlines()) == 3


def test_an_account_that_the_plugin_finds_invalid_is_explained_too() -> None:
    found = refusal("Job submission failed with exception: The given account x appears to be invalid. Available …")
    assert found is not None and "slurm_account" in found.remedy


def test_a_log_without_a_refusal_gives_no_advice() -> None:
    assert refusal("Error in rule train: SLURM-job '17' failed, SLURM status is: 'FAILED'.") is None
