"""Any way of starting: from no PATH, with another `python` first in it, from the notebook, by the console command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmu_scaling.jobs import own_python
from tests.workflow.conftest import ROOT, SMOKE

pytestmark = pytest.mark.slow
TARGET = "results/smoke/corpus/source.json"


def start(directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The engine of this environment by its full path; nothing is activated."""
    command = [Path(sys.executable).with_name("snakemake"), "--snakefile", ROOT / "Snakefile", "--directory", directory]
    command += ["--workflow-profile", ROOT / "profiles/default", "--configfile", ROOT / SMOKE, "--cores", "1"]
    return subprocess.run(
        [*command, "--", TARGET],
        cwd=ROOT,
        env={"HOME": str(Path.home()), **environment},
        capture_output=True,
        text=True,
    )


def test_jobs_find_their_interpreter_without_a_path(tmp_path: Path) -> None:
    done = start(tmp_path, {})
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / TARGET).is_file()


def test_another_python_first_in_the_path_is_not_used(tmp_path: Path) -> None:
    decoy = tmp_path / "bin/python"
    decoy.parent.mkdir()
    decoy.write_text("#!/bin/sh\necho the wrong python >&2\nexit 1\n")
    decoy.chmod(0o755)
    done = start(tmp_path, {"PATH": f"{decoy.parent}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("program", [["snakemake"], [sys.executable, "-m", "snakemake"]])
def test_a_target_that_would_be_read_as_a_configuration_file_is_explained(program: list[str]) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "workflow/plugins")}
    command = [*program, "--cores", "1", "--configfile", SMOKE, "plan"]
    done = subprocess.run([*command, "--dry-run"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        "error: there is no configuration file plan",
        f"  where: --configfile {SMOKE} plan",
        "  what to do: correct the name; if it is a target, put -- before it: ... -- plan",
    ]


def test_with_conda_the_environments_python_is_used() -> None:
    """The engine activates the environment first: nothing may come before it in PATH afterwards."""
    text = (ROOT / "workflow/rules/common.smk").read_text("utf-8")
    assert '"" if provided else own_python(sys.executable)' in text


@pytest.mark.parametrize("name", ["python", "python3"])
def test_an_interpreter_of_any_name_is_found_in_any_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder; with $signs"
    folder.mkdir()
    (folder / name).write_text("#!/bin/sh\necho found $1\n")
    (folder / name).chmod(0o755)
    code = own_python(str(folder / name)).format() + "python yes"
    done = subprocess.run(["/bin/bash", "-c", f"set -euo pipefail; {code}"], env={}, capture_output=True, text=True)
    assert done.stdout == "found yes\n", done.stderr


def test_the_notebook_runs_where_it_lies(smoke_run: Path, tmp_path: Path) -> None:
    """Executed by Jupyter's own command in its folder, as an editor would, with the newest results of the clone."""
    clone = tmp_path / "clone"
    for name in ("workflow/notebooks", "lmu_scaling"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(smoke_run / "results/smoke/analysis", clone / "results/smoke/analysis")
    shutil.copytree(smoke_run / "results/smoke/tokens", clone / "results/smoke/tokens")
    shutil.copytree(smoke_run / "results/smoke/audit", clone / "results/smoke/audit")
    shutil.copy2(smoke_run / "results/smoke/config.json", clone / "results/smoke/config.json")
    shutil.copytree(smoke_run / "paper_figures", clone / "paper_figures")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "LMU_RESULTS")}
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", "replication.ipynb"]
    done = subprocess.run(
        command, cwd=clone / "workflow/notebooks", env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Each of the paper's claims is judged" in done.stdout
