"""Every environment is installed as its file says, and holds all that its rules import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lmu_scaling.jobs import find
from tests.unit.test_envs import ENVS, ROOT, lock, pins, rules

IMPORT_ALL = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


@pytest.mark.slow
@pytest.mark.parametrize("env", ENVS)
def test_the_pins_install_together_and_every_handler_of_the_environment_imports(env: str, tmp_path: Path) -> None:
    python = tmp_path / "env/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    # every requirement is pinned, so pip may not choose any; a CPU build of torch needs no CUDA
    wanted = [f"{name}=={version}" for name, version in pins(env).items() if not lock.is_cuda(name)]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--no-deps"]
    done = subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    modules = {find(job).module for _, own, job in rules() if own == env}
    if env == "analysis":
        for kind in ("figures", "tables"):
            modules |= {f"lmu_scaling.paper.{kind}.{p.stem}" for p in (ROOT / "lmu_scaling/paper" / kind).glob("*.py")}
    if env == "snakemake":
        modules |= {"snakemake", "lmu_scaling.config", "lmu_scaling.planning.resources"}
    done = subprocess.run([python, "-c", IMPORT_ALL, *sorted(modules)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
