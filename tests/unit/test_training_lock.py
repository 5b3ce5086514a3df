"""The lock of a run on a disk that knows no locks: one holder, no lock left behind by the dead, no clocks compared."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lmu_scaling.errors import RunLocked
from lmu_scaling.training import lock
from lmu_scaling.training.lock import exclusive


@pytest.fixture(params=[errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(request.param, "this disk has no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_one_process_at_a_time(tmp_path: Path, no_locks: None) -> None:
    path, inside = tmp_path / "live" / "lock-0", []

    def work(name: int) -> None:
        with exclusive(path, every=0.01):
            inside.append(name)
            assert len(inside) == 1
            time.sleep(0.05)
            inside.remove(name)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not inside and not path.with_name("lock-0.held").exists()


def test_who_does_not_want_to_wait_is_told(tmp_path: Path, no_locks: None) -> None:
    with exclusive(tmp_path / "lock"), pytest.raises(RunLocked), exclusive(tmp_path / "lock", wait=False):
        pass


def test_the_lock_of_a_dead_process_of_this_machine_is_taken_over(tmp_path: Path, no_locks: None) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "lock.held").write_text(f"{lock.platform.node()} {dead.pid} 3\n")
    with exclusive(tmp_path / "lock", every=0.01):
        pass


def test_the_lock_of_another_machine_is_taken_over_when_its_count_stands_still(
    tmp_path: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its date may lie in the future or the past: only the count matters."""
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    held = tmp_path / "lock.held"
    held.write_text("elsewhere 17 0\n")
    alive = threading.Event()

    def count() -> None:
        for i in range(1, 12):
            held.write_text(f"elsewhere 17 {i}\n")
            time.sleep(0.1)
        alive.set()

    threading.Thread(target=count).start()
    with exclusive(tmp_path / "lock", every=0.02):
        assert alive.is_set(), "it was still counting"


def test_other_errors_are_not_taken_for_missing_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="input/output"), exclusive(tmp_path / "lock"):
        pass
