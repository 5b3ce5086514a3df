"""What a test needs of its machine: missing on a user's, the test is skipped and says why; in CI it fails."""

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
    """A mark: the test runs if `present`, and in CI in any case."""
    return pytest.mark.skipif(not present and not IN_CI, reason=otherwise)


def require(present: object, otherwise: str) -> None:
    """The same inside a test or a fixture."""
    if not present:
        (pytest.fail if IN_CI else pytest.skip)(otherwise)


def can_mount() -> bool:
    """Whether this machine has name spaces in which a small disk can be mounted, unseen by others."""
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


def on_small_disk(folder: Path, kilobytes: int, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command for which `folder` is a disk of that size."""
    folder.mkdir(parents=True, exist_ok=True)
    script = f'mount -t tmpfs -o size={kilobytes}k none {shlex.quote(str(folder))} && exec "$@"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
