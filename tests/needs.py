"""Requirements of tests on their machine. If one is missing, the test is skipped with a reason; in CI it fails."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
IN_CI = bool(os.environ.get("LMU_SCALING_CI"))


def needs(present: object, otherwise: str) -> pytest.MarkDecorator:
    """Mark a test to run only if `present`; in CI it always runs."""
    return pytest.mark.skipif(not present and not IN_CI, reason=otherwise)


def require(present: object, otherwise: str) -> None:
    """The same inside a test or a fixture."""
    if not present:
        (pytest.fail if IN_CI else pytest.skip)(otherwise)


def can_mount() -> bool:
    """Whether this machine allows private mounts in a user name space."""
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


def on_small_disk(folder: Path, kilobytes: int, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with a tmpfs of that size mounted at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    script = f'mount -t tmpfs -o size={kilobytes}k none {shlex.quote(str(folder))} && exec "$@"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
