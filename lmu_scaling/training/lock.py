"""One process per run. The kernel releases the lock when its process ends, so a killed job leaves none behind."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmu_scaling.errors import RunLocked
from lmu_scaling.runtime import disk_full_is_explained

AFFECTS_RESULTS = False


@contextmanager
def exclusive(path: Path, wait: bool = True, every: float = 1.0) -> Iterator[None]:
    """Hold the lock at `path`; while another process holds it, wait (and report it once) or raise RunLocked."""
    with disk_full_is_explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")
    with file:
        said = False
        while not _try_lock(file.fileno()):
            if not wait:
                raise RunLocked("another process trains this run", str(path), "wait for it, or stop it and run again")
            if not said:
                print(f"another process trains this run ({path}); waiting for it", file=sys.stderr, flush=True)
                said = True
            time.sleep(every)
        with disk_full_is_explained(path):
            file.truncate(0)
            os.write(file.fileno(), f"{os.getpid()}\n".encode())  # unbuffered: nothing to flush on closing
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
