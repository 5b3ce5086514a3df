"""`status` tells apart runs that are done, train, failed, were stopped, or wait."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.errors import ResultsError
from lmu_scaling.runtime import write_json
from lmu_scaling.training.status import State, run_status, status, statuses
from tests import toy


def make(results: Path, name: str) -> Path:
    folder = results / "training" / name
    (folder / "live").mkdir(parents=True)
    write_json(folder / "spec.json", toy.spec("lmu", steps=10))  # 10 · 4 · 24 tokens
    return folder


def progress(folder: Path, steps: int, age: float = 1000.0) -> None:
    rows = [
        {"step": step, "tokens": 96 * step, "loss": 6 - step / 10, "validation_loss": None, "time": 100.0 + step}
        for step in range(1, steps + 1)
    ]
    log = folder / "live/progress.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(log, (time.time() - age, time.time() - age))


def test_each_state_is_recognised(tmp_path: Path) -> None:
    make(tmp_path, "lmu-a-x1-s1")
    done = make(tmp_path, "lmu-b-x1-s1")
    write_json(done / "result.json", {"final_loss": 4.5, "validation_loss": 4.25, "diverged": False})
    stopped = make(tmp_path, "lmu-c-x1-s1")
    progress(stopped, 3)
    failed = make(tmp_path, "lmu-d-x1-s1")
    progress(failed, 3)
    (tmp_path / "logs/train").mkdir(parents=True)
    (tmp_path / "logs/train/lmu-d-x1-s1.log").write_text("started\nerror: no space left\n  where: here\n")
    found = {run.name: run for run in statuses(tmp_path)}
    assert {name: run.state for name, run in found.items()} == {
        "lmu-a-x1-s1": State.WAITING,
        "lmu-b-x1-s1": State.DONE,
        "lmu-c-x1-s1": State.STOPPED,
        "lmu-d-x1-s1": State.FAILED,
    }
    assert found["lmu-d-x1-s1"].error == "no space left"
    assert found["lmu-b-x1-s1"].validation_loss == 4.25


def test_a_run_whose_lock_is_held_trains_with_speed_and_time_left(tmp_path: Path) -> None:
    folder = make(tmp_path, "lmu-a-x1-s1")
    progress(folder, 4)
    with open(folder / "live/lock-0", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = run_status(folder)
    assert found.state is State.RUNNING
    assert found.loss == pytest.approx(5.6) and found.share == pytest.approx(0.4)
    assert found.tokens_per_second == pytest.approx(96)
    assert found.seconds_left == pytest.approx(6)
    assert run_status(folder).state is State.STOPPED, "the lock was released"


def test_a_fresh_log_without_a_lock_means_that_another_machine_trains(tmp_path: Path) -> None:
    folder = make(tmp_path, "lmu-a-x1-s1")
    progress(folder, 2, age=5.0)
    assert run_status(folder).state is State.RUNNING


def test_the_command_prints_what_matters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress(make(tmp_path, "lmu-a-x1-s1"), 5)
    make(tmp_path, "lmu-b-x1-s1")
    status(tmp_path)
    said = capsys.readouterr().out
    assert "lmu-a-x1-s1  stopped    50%  loss 5.500" in said
    assert "2 runs: 1 stopped, 1 waiting; 0 evaluated; no report yet" in said and "lmu-b" not in said
    status(tmp_path, all=True)
    assert "lmu-b-x1-s1  waiting" in capsys.readouterr().out


def test_an_experiment_that_has_not_begun_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no run"):
        status(tmp_path)


@given(st.binary(max_size=300))
def test_damaged_files_never_stop_the_command(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "live").mkdir()
    for name in ("spec.json", "result.json", "live/progress.jsonl", "live/lock-0"):
        (folder / name).write_bytes(junk)
    assert run_status(folder, folder / "spec.json").line()
