"""Several machines on one network disk, pretended by a library that is preloaded into their processes (network_disk.c).

The machines have names and clocks of their own, see each other's files late, and have locks that hold on one machine
only, or none at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.needs import require

SOURCE = Path(__file__).with_suffix(".c")


class NetworkDisk:
    """A disk in `folder`; files that another machine made are visible after `late` seconds."""

    def __init__(self, folder: Path, scratch: Path, late: float = 0.0, flock: str = "local") -> None:
        compiler = shutil.which("cc") or ""
        require(bool(compiler), "no C compiler")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.state, self.late, self.flock = folder.resolve(), scratch / "disk-state", late, flock
        self.state.mkdir(parents=True)
        self.library = scratch / "network_disk.so"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", self.library, SOURCE, "-ldl"], check=True)

    def machine(self, name: str, clock: int = 0) -> dict[str, str]:
        """The environment of a process on the machine of this name, whose clock is ahead by `clock` seconds."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self.library),
            "DISK_FOLDER": str(self.folder),
            "DISK_STATE": str(self.state),
            "DISK_HOST": name,
            "DISK_LATE": str(self.late),
            "DISK_CLOCK": str(clock),
            "DISK_FLOCK": self.flock,
        }

    def settle(self) -> None:
        """Wait until every machine sees the files that are here now."""
        time.sleep(self.late)
