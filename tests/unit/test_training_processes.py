"""Several processes give the same run as one, up to the order of sums; the command line explains errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lmu_scaling.runtime import read_json, write_json
from tests import toy

ROOT = Path(__file__).resolve().parents[2]


def arguments(folder: Path, tokens: Path) -> list[str]:
    out = {"weights": "w.safetensors", "history": "h.parquet", "result": "r.json", "live": "live", "spec": "spec.json"}
    flags = {"tokens": str(tokens), "device": "cpu", "compile": "off", **{k: str(folder / v) for k, v in out.items()}}
    return ["train", *(x for key, value in flags.items() for x in (f"--{key}", value))]


@pytest.mark.slow
def test_two_processes_train_the_same_run_as_one(tmp_path: Path) -> None:
    tokens = toy.write_tokens(tmp_path / "tokens")
    histories = []
    for world in (1, 2):
        folder = tmp_path / str(world)
        folder.mkdir()
        write_json(folder / "spec.json", toy.spec("lmu_attention", 10, batch=6))
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(
            [*launch, "-m", "lmu_scaling", *arguments(folder, tokens)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        assert read_json(folder / "r.json")["machine"]["processes"] == world
        histories.append(pq.read_table(folder / "h.parquet"))
    for column in ("loss", "validation_loss", "learning_rate"):
        one, two = (np.array(history.column(column).to_pylist(), float) for history in histories)
        np.testing.assert_allclose(two, one, rtol=1e-5)


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lmu_scaling", *argv], cwd=ROOT, capture_output=True, text=True)


def test_an_error_has_three_lines_and_no_traceback(tmp_path: Path) -> None:
    done = run(*arguments(tmp_path, tmp_path / "manifest.json"))
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith("error: ") and lines[1].startswith("  where: ") and lines[2].startswith("  what to do: ")
    assert "Traceback" not in done.stderr


def test_a_gpu_that_is_not_there_is_explained(tmp_path: Path) -> None:
    write_json(tmp_path / "spec.json", toy.spec("lstm"))
    argv = arguments(tmp_path, toy.write_tokens(tmp_path / "tokens"))
    argv[argv.index("cpu")] = "cuda"
    done = run(*argv)
    if done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert "torch sees none" in done.stderr and "Traceback" not in done.stderr


def test_help_lists_every_job_by_stage_quickly() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("corpus", "tokens", "training", "evaluation", "analysis", "paper", "audit", "train", "evaluate"):
        assert word in done.stdout


def test_the_command_line_alone_does_not_import_torch() -> None:
    code = "import sys; from lmu_scaling import cli, experiment, config; cli._overview(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
