"""Atomic files: what a killed process left behind goes with the next write, what a living one writes stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmu_scaling.errors import DiskFull
from lmu_scaling.runtime import atomic_write
from tests.needs import can_mount, on_small_disk


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


FULL = "import sys; from pathlib import Path; from lmu_scaling.errors import DiskFull\n"


@pytest.mark.skipif(not can_mount(), reason="needs a name space in which a small disk can be mounted")
@pytest.mark.parametrize("part", ["lock", "live log"])
def test_a_full_disk_is_explained_wherever_a_training_run_writes(part: str, tmp_path: Path) -> None:
    """A disk of one page, filled up before the lock's line, or the live log's, is written."""
    code = {
        "lock": "from lmu_scaling.training.lock import exclusive\nfill()\nwith exclusive(disk / 'lock'): pass\n",
        "live log": "from types import SimpleNamespace\nfrom lmu_scaling.training.watch import Watch\n"
        "watch = Watch(disk, 'run', 1, 1.0, 1.0, True)\nwatch.board = None\nfill()\n"
        "row = {'step': 1, 'loss': 5.0, 'validation_loss': None}\n"
        "run = SimpleNamespace(rules={'batch': 1}, context=1, step=1, seconds=1.0, waited=0.0, history=[row])\n"
        "try:\n    watch.advance(run)\nfinally:\n    watch.close()\n",
    }[part]
    fill = "def fill():\n    try: (disk / 'junk').write_bytes(bytes(1 << 20))\n    except OSError: pass\n"
    guarded = "".join(f"    {line}\n" for line in code.splitlines())
    script = f"{FULL}disk = Path(sys.argv[1])\n{fill}try:\n{guarded}except DiskFull as error: print(error.exit_code)\n"
    done = on_small_disk(tmp_path / "disk", 64, [sys.executable, "-c", script, str(tmp_path / "disk")])
    assert done.stdout == f"{DiskFull.exit_code}\n", done.stderr
