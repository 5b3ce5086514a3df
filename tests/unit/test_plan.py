"""The plan agrees with hand calculations, and the disk check refuses what does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lmu_scaling import experiment
from lmu_scaling.config import load
from lmu_scaling.errors import DiskFull
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.planning import cost_model, disk
from lmu_scaling.planning.plan import Planner
from lmu_scaling.planning.rendering import plan_markdown, plan_text
from lmu_scaling.planning.verdicts import possible_verdicts
from lmu_scaling.runtime import write_json
from lmu_scaling.sections import Config

PRESETS = REPOSITORY / "workflow" / "presets"


@pytest.fixture(scope="module")
def paper() -> Config:
    return load(REPOSITORY / "config.yaml", PRESETS / "paper.yaml")


@pytest.fixture(scope="module")
def smoke() -> Config:
    return load(REPOSITORY / "config.yaml", PRESETS / "smoke.yaml")


def test_tokens_of_the_paper_preset_are_those_of_a_hand_count(paper: Config, tmp_path: Path) -> None:
    """In units of 13.1072e9 tokens (docs/plan.md):

    5 variants x 6 sizes x 3 seeds; the transformer at 2 times with 3 seeds, at 5 and 10 times with one; the paper's
    recipe for 2 variants; 4 alternatives; sweep runs of a quarter: 8 at the smallest size and 4 at the others, and 4 at
    each size for the transformer's budgets of 5 and 10.
    """
    runs = 5 * 6 * 3 + 6 * (2 * 3 + 5 + 10) + 2 * 6 * 3 + 4
    sweeps = 5 * (8 + 5 * 4) / 4 + 6 * 4 * (5 + 10) / 4
    assert Planner(paper, tmp_path).record()["tokens"] == (runs + sweeps) * 25_000 * 512 * 1024


def test_flops_of_the_paper_preset_are_within_1_5_of_a_hand_calculation(paper: Config, tmp_path: Path) -> None:
    """By hand, as Kaplan et al. count: 6 FLOPs per token for each of N = 24 d² and of the head's d V (docs/plan.md)."""
    budget = 25_000 * 512 * 1024
    per_token = sum(6 * (24 * d**2 + 50_257 * d) for d in (48, 64, 92, 120, 144, 204))
    by_hand = budget * per_token * (5 * 3 + 2 * 3 + 5 + 10 + 2 * 3 + (5 * 4 + 4 * (5 + 10)) / 4)
    assert by_hand == pytest.approx(1.75e20, rel=0.01)
    ratio = Planner(paper, tmp_path).record()["flops"] / by_hand
    assert 1 / 1.5 < ratio < 1.5


def test_hours_follow_from_flops_and_on_a_gpu_from_bytes_as_well(paper: Config) -> None:
    spec = experiment.spec_of(paper, experiment.runs(paper)[0])
    device = paper.plan.accelerators[0]
    cost = cost_model.training_cost(spec)
    without = device.model_copy(update={"bandwidth_gbs": None})
    peak = device.tflops * 1e12 * device.utilisation
    assert cost.seconds(without) - cost_model.TRAIN_START_SECONDS == pytest.approx(cost.flops / peak)
    traffic = cost.work.bytes / (cost_model.BANDWIDTH_SHARE * device.bandwidth_gbs * 1e9)
    expected = cost.flops / cost.flops_per_token * (cost.work.flops / peak + traffic)
    assert cost.work.steps == 0, "the first run is no LSTM"
    assert cost.seconds(device) - cost_model.TRAIN_START_SECONDS == pytest.approx(expected)
    assert cost.seconds(device, tokens_per_second=1000.0) - cost_model.TRAIN_START_SECONDS == pytest.approx(
        cost.tokens / 1000
    )


def test_a_job_reserves_a_gpu_only_if_the_first_accelerator_is_one(paper: Config, smoke: Config) -> None:
    for config, gpus in ((paper, 1), (smoke, 0)):
        cost = cost_model.training_cost(experiment.spec_of(config, experiment.runs(config)[0]))
        resources = cost_model.training_resources(cost, config.plan.accelerators[0])
        assert resources["gpu"] == gpus
        assert resources["runtime"] >= cost_model.LEAST_MINUTES
        assert resources["mem_mb"] >= cost_model.PROCESS_MB


def test_the_micro_batch_fits_into_the_memory_it_was_chosen_for(paper: Config) -> None:
    for run in experiment.runs(paper)[::7]:
        cost = cost_model.training_cost(experiment.spec_of(paper, run))
        for gigabytes in (1, 8, 40, 1e6):
            device = paper.plan.accelerators[0].model_copy(update={"memory_gb": gigabytes})
            size = cost.micro_batch(device)
            assert size == 0 or cost.memory_bytes("gpu", size) <= gigabytes * 1e9
        assert size == cost.batch


def test_an_lmu_reaches_less_of_the_peak_than_a_transformer_because_it_moves_more_bytes(paper: Config) -> None:
    """One assumed utilisation for all would hide it."""
    device = paper.plan.accelerators[0]
    costs = {
        run.variant: cost_model.training_cost(experiment.spec_of(paper, run))
        for run in experiment.runs(paper)
        if run.size == "1M" and run.multiple == 1
    }
    share = {name: cost.flops_per_token / cost.seconds_per_token(device) for name, cost in costs.items()}
    assert share["lmu"] < 0.7 * share["transformer"]


def test_the_paper_preset_fits_the_hours_that_the_documentation_promises(paper: Config) -> None:
    """docs/scaling.md, tuned runs of the paper's four architectures: 250 A100 hours at its budget, 1,000 in all."""
    device = paper.plan.accelerators[0]
    hours = {
        run: cost_model.training_cost(experiment.spec_of(paper, run)).seconds(device) / 3600
        for run in experiment.runs(paper)
        if run.setting == "main" and run.variant != "transformer_modern"
    }
    assert sum(time for run, time in hours.items() if run.multiple == 1) <= 250
    assert sum(hours.values()) <= 1000


def test_a_plan_says_what_is_done_already(smoke: Config, tmp_path: Path) -> None:
    runs = experiment.runs(smoke)
    before = Planner(smoke, tmp_path).record()
    for run in runs[:3]:
        write_json(tmp_path / "smoke" / "training" / run.name / "result.json", {})
    after = Planner(smoke, tmp_path).record()
    row = next(row for row in after["rows"] if row["rule"] == "train")
    assert (row["jobs"], row["done"]) == (len(runs), 3)
    assert after["remaining_seconds"] < before["remaining_seconds"]
    assert after["total_seconds"] == before["total_seconds"]


def test_hours_to_do_are_all_hours_before_a_run_and_none_after_it(smoke: Config, tmp_path: Path) -> None:
    device = Planner(smoke, tmp_path).record()["accelerators"][0]
    assert device["remaining_hours"] == pytest.approx(device["hours"])
    for run in (*experiment.runs(smoke), *experiment.sweeps(smoke)):
        write_json(tmp_path / "smoke" / "training" / run.name / "result.json", {})
    trained = Planner(smoke, tmp_path).record()["accelerators"][0]
    assert 0 < trained["remaining_hours"] < device["remaining_hours"], "the evaluations"
    for run in experiment.runs(smoke):
        write_json(tmp_path / "smoke" / "evaluation" / run.name / "summary.json", {})
    assert Planner(smoke, tmp_path).record()["accelerators"][0]["remaining_hours"] == 0


def test_jobs_of_the_plan_are_the_jobs_of_the_workflow(smoke: Config, tmp_path: Path) -> None:
    rows = {row["rule"]: row["jobs"] for row in Planner(smoke, tmp_path).record()["rows"]}
    assert rows["train"] == rows["evaluate"] == 5 * 2 * 2 + 2  # a further budget, an alternative
    assert rows["train (sweep)"] == 5 * (3 + 2)
    assert rows["specify"] == rows["train"] + rows["train (sweep)"]
    assert rows["encode"] == rows["shard"] == smoke.corpus.parts


def test_a_disk_that_is_too_small_stops_the_run_before_it_starts(
    paper: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 50 * 10**9)
    with pytest.raises(DiskFull) as refused:
        disk.check_disk_space(paper, tmp_path / "results", tmp_path / "data")
    assert "50 GB are free" in str(refused.value)
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 10**12)
    disk.check_disk_space(paper, tmp_path / "results", tmp_path / "data")


def test_disk_of_the_paper_preset_is_within_1_5_of_a_hand_calculation(paper: Config) -> None:
    """Kept: 8e9 tokens x 2 bytes, and some 360 models of 6M float32 parameters.

    At the peak also 15e9 tokens x 2 bytes and 17.1M x 536 bytes of signatures.
    """
    data = cost_model.corpus_size(paper)
    space = disk.disk_space(paper, data)
    kept = 16e9 + 360 * 6e6 * 4
    assert 1 / 1.5 < space.kept / kept < 1.5
    assert 1 / 1.5 < space.peak / (kept + 30e9 + 17.1e6 * 536) < 1.5
    assert space.download == 29_344_276_480


def test_compressed_files_of_your_own_hold_more_text_than_bytes(smoke: Config, tmp_path: Path) -> None:
    """Compared at equal size: a job's time and the disk follow from the text, not from the archive."""
    texts = {}
    for name in ("a.jsonl", "a.jsonl.zst", "a.jsonl.zst.tar", "a.jsonl.gz"):
        (tmp_path / name).write_bytes(bytes(1000))
        own = smoke.model_copy(
            update={"corpus": smoke.corpus.model_copy(update={"source": "local", "path": str(tmp_path / name)})}
        )
        texts[name] = cost_model.corpus_size(own).text_bytes
    assert texts.pop("a.jsonl") == 1000
    assert all(2000 < text < 3000 for text in texts.values())


def test_counted_tokens_replace_estimated_ones(smoke: Config, tmp_path: Path) -> None:
    splits = {"train": {"tokens": 900}, "validation": {"tokens": 50}, "test": {"tokens": 50}}
    write_json(tmp_path / "manifest.json", {"splits": splits})
    data = cost_model.corpus_size(smoke, tmp_path / "manifest.json")
    assert data.known
    assert data.kept_tokens == 1000


def test_planning_needs_neither_torch_nor_pandas() -> None:
    """The workflow imports it at every start."""
    check = "import sys, lmu_scaling.planning.plan; sys.exit(bool({'torch', 'pandas', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], cwd=REPOSITORY, check=False).returncode == 0


def test_a_rehearsal_measures_every_model(smoke: Config) -> None:
    from lmu_scaling.planning.rehearsal import measure_throughput

    speeds = measure_throughput(smoke)
    assert set(speeds) == {f"{v}-{s.name}" for v in smoke.models.variants for s in smoke.models.sizes}
    assert all(speed > 0 for speed in speeds.values())


# ------------------------------------------------------------------------------------------------ possible verdicts
TRAINED = ("C1", "C2", "C3", "C3m", "C4", "C5", "C5m", "C6", "C6m", "C7", "C7m", "C8", "C8m")
STUDY = tuple(id for claim in TRAINED for id in ((claim, f"{claim[:-1]}r") if claim.endswith("m") else (claim,)))


@pytest.mark.parametrize(
    ("preset", "direct", "conceptual"),
    [
        ("smoke", (), ()),
        ("study", (), STUDY),
        ("single_gpu", TRAINED, TRAINED),
        ("paper", TRAINED, ()),  # 1.7 epochs
    ],
)
def test_a_preset_can_give_the_verdicts_that_the_readme_says(
    preset: str, direct: tuple[str, ...], conceptual: tuple[str, ...]
) -> None:
    config = load(REPOSITORY / "config.yaml", PRESETS / f"{preset}.yaml")
    found = possible_verdicts(config, config.corpus.target_tokens or 0)
    judged = STUDY if "transformer_rotary" in config.models.variants else TRAINED
    assert [claim["id"] for claim in found] == list(judged)
    assert tuple(claim["id"] for claim in found if not claim["direct"]) == direct
    assert tuple(claim["id"] for claim in found if not claim["conceptual"]) == conceptual


def test_the_plan_names_the_condition_that_a_configuration_fails(smoke: Config, tmp_path: Path) -> None:
    record = Planner(smoke, tmp_path).record()
    assert "Conceptual verdicts (docs/claims.md): none." in plan_text(record)
    told = "Not on C7, C7m, C8, C8m: a context of 64 tokens (needs 512); 2 training tokens per parameter (needs 100)."
    assert told in plan_text(record) and told in plan_markdown(record)
    sizes = "2 sizes (needs 5); 0.57 to 0.60 decades of N (needs 1.2); 2 training tokens per parameter (needs 100)."
    assert f"Not on C1, C2, C3, C3m, C4, C5, C5m, C6, C6m: {sizes}" in plan_text(record)
