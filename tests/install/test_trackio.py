"""trackio in an environment of its own: it wants an older pillow than matplotlib."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import ROOT

VERSION = "0.43.0"
CODE = """
from pathlib import Path
from lmu_scaling.training.trackers import Trackers

sinks = Trackers("trackio", Path("."), "lmu-2k-x1-s1", {"seed": 1})
sinks.log({"step": 1, "tokens": 96, "loss": 5.5, "validation_loss": None})
sinks.log({"step": 2, "tokens": 192, "loss": 5.25, "validation_loss": 5.0})
assert list(sinks.sinks) == ["trackio"]
sinks.close()
assert list(sinks.sinks) == ["trackio"]
"""


def run(python: Path | str, folder: Path) -> None:
    """Log two rows with that Python, and look for them in trackio's database."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKIO_DIR": str(folder), "HOME": str(folder)}
    done = subprocess.run([python, "-c", CODE], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (database,) = folder.glob("lmu-scaling*.db")
    with sqlite3.connect(database) as connection:
        (count,) = connection.execute("select count(*) from metrics").fetchone()
    assert count == 2


@pytest.mark.slow
def test_trackio_keeps_a_local_database(tmp_path: Path) -> None:
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([home / "bin/python", "-m", "pip", "install", *quiet, f"trackio=={VERSION}"], check=True)
    (tmp_path / "work").mkdir()
    run(home / "bin/python", tmp_path / "work")
