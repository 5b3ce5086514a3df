"""One process at a time for a run, a download or an experiment, also when several machines share the disk.

Two locks are held together, because either can fail. `flock` ends with its process, but some network disks do not know
it, and others keep it to one machine without saying so. The file `<lock>.held` exists while the lock is held, and its
holder counts in it. Who waits takes the lock over when the count has stood still for `PATIENCE` seconds of its own
clock, or when the holder was a process of the same machine that is dead. Clocks of two machines are never compared.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lmu_scaling.errors import RunLocked
from lmu_scaling.runtime import disk_full_is_explained, machine

AFFECTS_RESULTS = False
NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)
HEARTBEAT, PATIENCE = 5.0, 120.0  # [s]
TRAINS = "another process trains this run"


@dataclass
class Held:
    """A lock that this process holds."""

    file: IO[str]
    waited: bool  # for another process
    left: str  # what its last holder wrote down with `leave`

    def leave(self, word: str) -> None:
        """Write something down for the next holder."""
        self._write(f"{os.getpid()} {word}\n")

    def _write(self, text: str) -> None:
        self.file.truncate(0)
        os.write(self.file.fileno(), text.encode())  # unbuffered: nothing to flush on closing


def stop() -> None:
    """End this process before it writes anything: another one has its place."""
    os._exit(RunLocked.exit_code)


@contextmanager
def exclusive(
    path: Path, wait: bool = True, every: float = 1.0, what: str = TRAINS, on_loss: Callable[[], None] = stop
) -> Iterator[Held]:
    """Hold the lock at `path`; while another process holds it, wait (and report it once) or raise RunLocked.

    Without `wait`, a holder on another machine is watched until it shows a sign of life or is taken for dead. A process
    that was suspended for so long that another one has taken its lock calls `on_loss` when it wakes up.
    """
    with disk_full_is_explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")
    with file:
        waited, counter = False, Counter(path.with_name(f"{path.name}.held"), on_loss)
        while not _take(file.fileno(), counter):
            if counter.alive and not wait:
                raise RunLocked(what, f"{path}{counter.holder()}", "wait for it, or stop it and run again")
            if not waited:
                print(f"{what} ({path}); waiting for it", file=sys.stderr, flush=True)
                waited = True
            time.sleep(every)
        try:
            file.seek(0)
            held = Held(file, waited, file.read().partition(" ")[2].strip())
            with disk_full_is_explained(path):
                held._write(f"{os.getpid()}\n")
            yield held
        finally:
            counter.release()


def _take(descriptor: int, counter: Counter) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        counter.alive = True
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return counter.take()
    if counter.take():
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


class Counter:
    """A file that exists while the lock is held, with a count that grows while its holder lives."""

    def __init__(self, path: Path, on_loss: Callable[[], None]) -> None:
        self.path, self.on_loss, self.own = path, on_loss, threading.Lock()
        self.held, self.over, self.alive = False, threading.Event(), False
        self.seen, self.since = "", time.monotonic()
        self.name = f"{platform.node()} {os.getpid()} {machine()}.{threading.get_ident()}"

    def take(self) -> bool:
        with disk_full_is_explained(self.path):
            if not self._create():
                return False
            try:
                self._write(0)
            except OSError:
                self.path.unlink(missing_ok=True)
                raise
        self.held = True
        threading.Thread(target=self._count, daemon=True).start()
        return True

    def holder(self) -> str:
        """For a message: who holds it."""
        with suppress(OSError):
            words = self.path.read_text("utf-8").split()
            if len(words) == 4:
                return f" (process {words[1]} on {words[0]})"
        return ""

    def release(self) -> None:
        with self.own:
            if self.held:
                self.held = False
                self.over.set()
                if self._read().startswith(self.name):
                    self.path.unlink(missing_ok=True)

    def _create(self) -> bool:
        for _ in range(2):
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                return True
            except FileExistsError:
                if not self._abandoned():
                    return False
                self._remove_abandoned()
        return False

    def _read(self) -> str:
        try:
            return self.path.read_text("utf-8")
        except FileNotFoundError:
            return ""

    def _abandoned(self) -> bool:
        text = self._read()
        if text != self.seen:
            self.alive |= bool(self.seen)
            self.seen, self.since = text, time.monotonic()
        words = text.split()
        if len(words) == 4 and words[2].partition(".")[0] == machine() and Path("/proc/self").exists():
            self.alive = Path(f"/proc/{words[1]}").exists()
            return not self.alive
        return time.monotonic() - self.since > PATIENCE

    def _remove_abandoned(self) -> None:
        """Remove the file that was judged, not one that another process has created since."""
        aside = self.path.with_name(f"{self.path.name}.{machine()}.{os.getpid()}")
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return
        if aside.read_text("utf-8") == self.seen:
            aside.unlink()
        else:
            aside.rename(self.path)

    def _count(self) -> None:
        count = 0
        while not self.over.wait(HEARTBEAT):
            count += 1
            with self.own, suppress(OSError):  # a full disk, for a while: the next beat may succeed
                if self.held and not self._beat(count):
                    self.held = False
                    self.over.set()
                    print(f"another process has taken the lock {self.path} meanwhile", file=sys.stderr, flush=True)
                    self.on_loss()

    def _beat(self, count: int) -> bool:
        """Count on, unless the lock belongs to another process now."""
        text = self._read()
        if text and not text.startswith(self.name):
            return False
        self._write(count)
        return True

    def _write(self, count: int) -> None:
        """In place and always of the same length: nobody reads an empty file."""
        descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o666)
        try:
            os.write(descriptor, f"{self.name} {count:010d}\n".encode())
        finally:
            os.close(descriptor)
