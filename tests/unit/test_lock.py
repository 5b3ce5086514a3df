"""Locks across processes and machines: one holder, no lock left behind by the dead, no clocks compared."""

from __future__ import annotations

import errno
import fcntl
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling import lock
from lmu_scaling.errors import RunLocked
from lmu_scaling.lock import exclusive
from lmu_scaling.runtime import machine
from tests import toy
from tests.network_disk import NetworkDisk
from tests.slurm.cluster import wait_for

ELSEWHERE = "elsewhere 17 0a1b2c3d.1"  # a process of another machine


def refuse(number: int) -> Any:
    def flock(*_: object) -> None:
        raise OSError(number, "this disk has no locks")

    return flock


@pytest.fixture(params=[errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refuse(request.param))


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
    (tmp_path / "lock.held").write_text(f"{lock.platform.node()} {dead.pid} {machine()}.1 3\n")
    with exclusive(tmp_path / "lock", every=0.01):
        pass


def test_the_lock_of_another_machine_is_taken_over_when_its_count_stands_still(
    tmp_path: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its date may lie in the future or the past: only the count matters."""
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    held = tmp_path / "lock.held"
    held.write_text(f"{ELSEWHERE} 0\n")
    alive = threading.Event()

    def count() -> None:
        for i in range(1, 12):
            held.write_text(f"{ELSEWHERE} {i}\n")
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


# -------------------------------------------------------------------------------------------------- several machines
@pytest.mark.parametrize("number", [None, errno.ENOLCK])
def test_a_lock_that_stays_on_one_machine_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """The disk grants `flock` to everybody, or to nobody; the other machine counts."""
    monkeypatch.setattr(fcntl, "flock", refuse(number) if number else lambda *_: None)
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)
    inside = exclusive(tmp_path / "lock")
    with inside:
        monkeypatch.setattr(lock, "machine", lambda: "0a1b2c3d")
        with pytest.raises(RunLocked) as caught, exclusive(tmp_path / "lock", wait=False, every=0.01):
            pass
    assert f"process {lock.os.getpid()} on {lock.platform.node()}" in str(caught.value)


def test_a_holder_that_does_not_count_keeps_its_lock_where_the_disk_has_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is suspended on another machine."""
    monkeypatch.setattr(lock, "PATIENCE", 0.05)
    (tmp_path / "lock.held").write_text(f"{ELSEWHERE} 3\n")
    with open(tmp_path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunLocked), exclusive(tmp_path / "lock", wait=False, every=0.02):
            pass


def test_the_process_numbers_of_another_machine_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is nobody's here may be a living process there."""
    monkeypatch.setattr(lock, "PATIENCE", 0.4)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "lock.held").write_text(f"{lock.platform.node()} {dead.pid} 0a1b2c3d.1 3\n")
    begun = time.monotonic()
    with exclusive(tmp_path / "lock", every=0.02):
        assert time.monotonic() - begun > 0.4


def test_who_does_not_want_to_wait_takes_the_lock_of_a_machine_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.2)
    (tmp_path / "lock.held").write_text(f"{ELSEWHERE} 3\n")
    with exclusive(tmp_path / "lock", wait=False, every=0.02):
        pass
    assert not (tmp_path / "lock.held").exists()


def test_who_wakes_up_after_its_lock_was_taken_over_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)
    stopped, held = threading.Event(), tmp_path / "lock.held"
    with exclusive(tmp_path / "lock", on_loss=stopped.set):
        assert not stopped.wait(0.2), "it counts while the lock is its own"
        held.write_text(f"{ELSEWHERE} 0\n")
        assert stopped.wait(10)
    assert held.read_text() == f"{ELSEWHERE} 0\n", "the other one's lock stays"


def test_a_lock_that_somebody_deleted_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)
    held = tmp_path / "lock.held"
    with exclusive(tmp_path / "lock"):
        held.unlink()
        deadline = time.monotonic() + 10
        while not held.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held.exists()
    assert not held.exists()


def train_command(folder: Path, tokens: Path) -> list[str]:
    words = [sys.executable, "-m", "lmu_scaling", "train", "--spec", str(folder / "spec.json"), "--tokens", str(tokens)]
    words += ["--live", str(folder / "live"), "--device", "cpu", "--code", "1", "--checkpoint-seconds", "0"]
    for name in ("weights", "history", "result", "manifest"):
        words += [f"--{name}", str(folder / ("run.manifest.json" if name == "manifest" else name))]
    return words


def stopped(process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, f"the process has ended with {process.returncode}"
    return "State:\tT" in Path(f"/proc/{process.pid}/status").read_text()


@pytest.mark.parametrize("late", [0, 3])
def test_a_second_job_of_a_run_waits_before_it_clears_outputs_and_trains_nothing(tmp_path: Path, late: float) -> None:
    """On another machine, with a clock of its own, which sees the first one's files late and not its locks.

    The first job is stopped when it has written its outputs and not yet its manifest: there it calls git.
    """
    disk = NetworkDisk(tmp_path / "results", tmp_path / "scratch", late)
    tokens = toy.write_tokens(disk.folder / "tokens")
    (disk.folder / "spec.json").write_text(json.dumps(toy.spec("lstm", 20)))
    disk.settle()
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nkill -STOP $PPID\nexit 1\n")
    git.chmod(0o755)
    machines = disk.machine("one", clock=300), disk.machine("two", clock=-300)
    machines[0]["PATH"] = f"{git.parent}:{machines[0]['PATH']}"
    command, log = train_command(disk.folder, tokens), tmp_path / "second.log"
    first = subprocess.Popen(command, env=machines[0], stdout=subprocess.PIPE, text=True)
    with open(log, "w") as file:
        try:
            wait_for(lambda: stopped(first), "the first job has written its outputs")
            second = subprocess.Popen(command, env=machines[1], stdout=file, stderr=subprocess.STDOUT)
            wait_for(lambda: "another process trains this run" in log.read_text(), "the second job waits")
            assert (disk.folder / "weights").is_file(), "nothing that the first one wrote is deleted"
            assert not (disk.folder / "run.manifest.json").exists()
        finally:
            first.send_signal(signal.SIGCONT)
        printed, _ = first.communicate(timeout=300)
        assert second.wait(300) == first.returncode == 0, log.read_text()
    assert "done: " in printed
    assert "another job has finished this run already" in log.read_text() and "done: " not in log.read_text()
    assert all((disk.folder / name).is_file() for name in ("weights", "history", "result", "run.manifest.json"))
