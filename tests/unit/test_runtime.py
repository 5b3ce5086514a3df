"""Atomic files: what a killed process left behind goes with the next write, what a living one writes stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmu_scaling.runtime import atomic_write


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    target = tmp_path / "figure [1].png"
    dead, living = (tmp_path / f".{target.name}.{pid}.partial" for pid in (ended.pid, os.getppid()))
    other = tmp_path / f".another.png.{ended.pid}.partial"
    for path in (dead, living, other):
        path.write_text("half")
    with atomic_write(target) as file:
        file.write("whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, living, other])


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
