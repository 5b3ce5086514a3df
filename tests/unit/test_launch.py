"""Local GPU slots: concurrent jobs claim different devices, claims die with jobs, CUDA_VISIBLE_DEVICES is obeyed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lmu_scaling.runtime import read_json, write_json
from lmu_scaling.training import launch
from tests import toy
from tests.needs import require

ROOT = Path(__file__).resolve().parents[2]
GPUS = ["GPU-a", "GPU-b", "GPU-c"]
HOLD = """
import sys
from pathlib import Path
from lmu_scaling.training.launch import claim
print(*claim(sys.argv[3:], int(sys.argv[2]), Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class Other:
    """Another job: a process that claims devices and holds them until its input is closed."""

    def __init__(self, folder: Path, count: int, devices: list[str]) -> None:
        command = [sys.executable, "-c", HOLD, str(folder), str(count), *devices]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def devices(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def end(self) -> None:
        self.process.communicate()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(autouse=True)
def _release() -> object:
    yield
    for descriptor in launch._held:
        os.close(descriptor)
    launch._held.clear()


def test_concurrent_jobs_get_different_devices_and_the_fourth_of_three_gets_none(tmp_path: Path) -> None:
    with Other(tmp_path, 1, GPUS) as one, Other(tmp_path, 1, GPUS) as two:
        taken = {*one.devices(), *two.devices()}
        assert len(taken) == 2
        assert launch.claim(GPUS, 1, tmp_path) == [name for name in GPUS if name not in taken]
        assert launch.claim(GPUS, 1, tmp_path, wait=False) == []


def test_a_job_that_waits_goes_on_when_another_ends(tmp_path: Path) -> None:
    assert launch.claim(GPUS[:1], 1, tmp_path) == GPUS[:1]
    with Other(tmp_path, 1, GPUS[:1]) as waiting:
        assert waiting.process.poll() is None
        os.close(launch._held.pop())
        assert waiting.devices() == GPUS[:1]


def test_a_killed_job_leaves_no_claim(tmp_path: Path) -> None:
    with Other(tmp_path, 3, GPUS) as other:
        assert other.devices() == GPUS
        other.process.kill()
        other.process.wait()
    assert launch.claim(GPUS, 3, tmp_path, wait=False) == GPUS


def test_a_job_that_needs_two_holds_none_while_only_one_is_free(tmp_path: Path) -> None:
    """Otherwise two such jobs could wait for each other forever."""
    with Other(tmp_path, 2, GPUS) as other:
        other.devices()
        assert launch.claim(GPUS, 2, tmp_path, wait=False) == []
        assert launch.claim(GPUS, 1, tmp_path, wait=False) == ["GPU-c"]


def test_asking_for_more_than_there_is_is_explained(tmp_path: Path) -> None:
    with pytest.raises(launch.TooFewGPUs, match="asks for 4 GPUs and sees 3"):
        launch.claim(GPUS, 4, tmp_path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, GPUS), ("", []), ("-1", []), ("1", ["1"]), ("GPU-c, GPU-a", ["GPU-c", "GPU-a"]), ("0,2", ["0", "2"])],
)
def test_what_is_visible_is_what_the_environment_leaves(given: str | None, expected: list[str]) -> None:
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert launch.visible(environment, GPUS) == expected


def test_claims_stay_within_a_slurm_allocation() -> None:
    """Two allocations on one node may both call their GPU "0"."""
    inside = {launch.locks({"SLURM_JOB_ID": number}) for number in ("7", "8")}
    assert len(inside | {launch.locks({})}) == 3


def start(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lmu_scaling.training.launch", *argv],
        cwd=ROOT,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_gpus_the_job_runs_as_ever(tmp_path: Path) -> None:
    done = start("0", "schema", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("device", "seen"), [("auto", "error: this job requests a GPU, but torch sees none"), ("cpu", "")]
)
def test_a_job_that_holds_a_gpu_computes_on_it_or_says_why_not(tmp_path: Path, device: str, seen: str) -> None:
    """A CPU-only torch on a GPU node would train for weeks and look busy. CUDA_VISIBLE_DEVICES is what SLURM sets."""
    require(not torch.cuda.is_available(), "torch sees a GPU here")
    tokens = toy.write_tokens(tmp_path / "tokens")
    write_json(tmp_path / "spec.json", toy.spec("lmu", 2))
    paths = {"spec": "spec.json", "live": "live", "weights": "w", "history": "h", "result": "r"}
    flags = {key: str(tmp_path / value) for key, value in paths.items()} | {"tokens": str(tokens), "device": device}
    argv = [word for key, value in flags.items() for word in (f"--{key}", value)]
    done = start("1", "train", *argv, CUDA_VISIBLE_DEVICES="0", TMPDIR=str(tmp_path))
    assert seen in done.stderr, done.stderr
    assert (tmp_path / "w").exists() == (done.returncode == 0) == (device == "cpu")


def test_the_device_is_chosen_before_torch_is_loaded() -> None:
    command = "import sys, lmu_scaling.training.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], cwd=ROOT).returncode == 0


@pytest.mark.slow
def test_two_gpus_mean_two_processes_and_one_manifest(tmp_path: Path) -> None:
    """On a machine without GPUs the two processes share the CPU: the launch is the same."""
    tokens = toy.write_tokens(tmp_path / "tokens")
    write_json(tmp_path / "spec.json", toy.spec("lmu", 4, batch=4))
    paths = {"spec": "spec.json", "live": "live", "weights": "w", "history": "h", "result": "r", "manifest": "m.json"}
    flags = {key: str(tmp_path / value) for key, value in paths.items()} | {"tokens": str(tokens), "device": "cpu"}
    argv = [word for key, value in flags.items() for word in (f"--{key}", value)]
    done = start("2", "train", *argv, CUDA_VISIBLE_DEVICES="", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert read_json(tmp_path / "r")["machine"]["processes"] == 2
    assert read_json(tmp_path / "m.json")["job"] == "train"
