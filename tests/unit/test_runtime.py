"""Atomic files: what a killed process left behind goes with the next write, what a living one writes stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmu_scaling.errors import DiskFull, ResultsError
from lmu_scaling.runtime import atomic_write, duration, machine, write_json
from tests.needs import can_mount, on_small_disk


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    target = tmp_path / "figure [1].png"
    dead, living = (tmp_path / f".{target.name}.{machine()}.{pid}.partial" for pid in (ended.pid, os.getppid()))
    other = tmp_path / f".another.png.{machine()}.{ended.pid}.partial"
    elsewhere, long_ago = (tmp_path / f".{target.name}.{name}.{ended.pid}.partial" for name in ("0a1b2c3d", "ffff0000"))
    for path in (dead, living, other, elsewhere, long_ago):
        path.write_text("half")
    seconds = elsewhere.stat().st_mtime - 4000
    os.utime(long_ago, (seconds, seconds))
    with atomic_write(target) as file:
        file.write("whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, living, other, elsewhere])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")

    def fail() -> None:
        with atomic_write(target) as file:
            file.write("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_content_reaches_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a name that was renamed too early would stand for an empty file."""
    target, real_fsync, real_replace = tmp_path / "table.csv", os.fsync, os.replace
    seen: list[str] = []

    def fsync(descriptor: int) -> None:
        seen.append(f"fsync of {os.fstat(descriptor).st_size} bytes")
        real_fsync(descriptor)

    def replace(source: Path, destination: Path) -> None:
        seen.append(f"rename to {Path(destination).name}")
        real_replace(source, destination)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    with atomic_write(target) as file:
        file.write("whole")
    assert seen == ["fsync of 5 bytes", "rename to table.csv"]


FULL_DISK = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from lmu_scaling.errors import DiskFull
from lmu_scaling.lock import exclusive
from lmu_scaling.training.monitor import Monitor

disk, part = Path(sys.argv[1]), sys.argv[2]
row = {"step": 1, "loss": 5.0, "validation_loss": None}
run = SimpleNamespace(tokens_per_step=1, step=1, seconds=1.0, waited=0.0, history=[row])

def fill():
    try:
        (disk / "junk").write_bytes(bytes(1 << 20))
    except OSError:
        pass

try:
    if part == "lock":
        fill()
        with exclusive(disk / "lock"):
            pass
    else:
        monitor = Monitor(disk, "run", 1, 1.0, 1.0, True)
        monitor.board = None
        fill()
        if part == "live log":
            monitor.advance(run)
        else:
            monitor.unwritten.append({"step": 2})
            monitor.close()
except DiskFull as error:
    print(error.exit_code, flush=True)
    os._exit(0)  # at once: what the interpreter does on leaving is not the question
"""


@pytest.mark.skipif(not can_mount(), reason="needs a name space in which a small disk can be mounted")
@pytest.mark.parametrize("part", ["lock", "live log", "closing the live log"])
def test_a_full_disk_is_explained_wherever_a_training_run_writes(part: str, tmp_path: Path) -> None:
    """A disk of 64 KiB that is filled up just before the lock's line, or the live log's, is written."""
    done = on_small_disk(tmp_path / "disk", 64, [sys.executable, "-c", FULL_DISK, str(tmp_path / "disk"), part])
    assert done.stdout == f"{DiskFull.exit_code}\n", done.stderr


@pytest.mark.parametrize("make", [lambda path: path.parent.write_text("a file"), lambda path: path.mkdir(parents=True)])
def test_a_file_where_a_folder_should_be_and_the_other_way_round_are_explained(tmp_path: Path, make: Callable) -> None:
    path = tmp_path / "folder" / "file.json"
    make(path)
    with pytest.raises(ResultsError, match="cannot write: ") as error:
        write_json(path, {})
    assert error.value.where == str(path)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_duration_is_told_as_a_person_would_and_half_a_second_is_not_nothing() -> None:
    told = {0: "0 s", 0.5: "0.5 s", 0.99: "1 s", 89: "89 s", 90: "2 min", 5400: "1.5 h", 3 * 86400: "3.0 days"}
    assert {seconds: duration(seconds) for seconds in told} == told
