"""One process per run. The kernel releases the lock when its process ends, so a killed job leaves none behind.

Some network disks know no locks. There a file `<lock>.held` takes their place: whoever creates it holds the lock and
counts in it; who waits takes the lock over when the count has stood still for `PATIENCE` seconds of its own clock, or
when the holder was a process of the same machine that is dead. Clocks of two machines are never compared.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmu_scaling.errors import RunLocked
from lmu_scaling.runtime import disk_full_is_explained

AFFECTS_RESULTS = False
NO_LOCKS = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)
HEARTBEAT, PATIENCE = 5.0, 120.0  # [s]


@contextmanager
def exclusive(path: Path, wait: bool = True, every: float = 1.0) -> Iterator[None]:
    """Hold the lock at `path`; while another process holds it, wait (and report it once) or raise RunLocked."""
    with disk_full_is_explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")
    with file:
        said, substitute = False, Substitute(path.with_name(f"{path.name}.held"))
        while not _try_lock(file.fileno(), substitute):
            if not wait:
                raise RunLocked("another process trains this run", str(path), "wait for it, or stop it and run again")
            if not said:
                print(f"another process trains this run ({path}); waiting for it", file=sys.stderr, flush=True)
                said = True
            time.sleep(every)
        try:
            with disk_full_is_explained(path):
                file.truncate(0)
                os.write(file.fileno(), f"{os.getpid()}\n".encode())  # unbuffered: nothing to flush on closing
            yield
        finally:
            substitute.release()


def _try_lock(descriptor: int, substitute: Substitute) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return substitute.take()
    return True


class Substitute:
    """A lock for disks without locks: the file exists while it is held, and its count grows while the holder lives."""

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, threading.Event()
        self.seen, self.since = "", time.monotonic()

    def take(self) -> bool:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            if self._abandoned():
                self._remove_abandoned()  # the next attempt creates it anew; only one process can
            return False
        self.held.set()
        self._beat(0)
        threading.Thread(target=self._count, daemon=True).start()
        return True

    def release(self) -> None:
        if self.held.is_set():
            self.held.clear()
            self.path.unlink(missing_ok=True)

    def _abandoned(self) -> bool:
        try:
            text = self.path.read_text("utf-8")
        except OSError:
            return False
        if text != self.seen:
            self.seen, self.since = text, time.monotonic()
        host, _, rest = text.partition(" ")
        number = rest.partition(" ")[0]
        if host == platform.node() and number.isdigit() and not Path(f"/proc/{number}").exists():
            return Path("/proc/self").exists()
        return time.monotonic() - self.since > PATIENCE

    def _remove_abandoned(self) -> None:
        """Remove the file that was judged, not one that another process has created since."""
        aside = self.path.with_name(f"{self.path.name}.{platform.node()}.{os.getpid()}")
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
        while self.held.is_set():
            time.sleep(HEARTBEAT)
            count += 1
            if self.held.is_set():
                self._beat(count)

    def _beat(self, count: int) -> None:
        self.path.write_text(f"{platform.node()} {os.getpid()} {count}\n", "utf-8")
