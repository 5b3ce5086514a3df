"""One finished smoke run for all workflow tests, made by the command a user would type, in a scratch directory."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SMOKE = "workflow/presets/smoke.yaml"


def snakemake(
    directory: Path, *arguments: str, preset: str | None = SMOKE, root: Path = ROOT
) -> subprocess.CompletedProcess:
    """Run the workflow of `root` with `directory` as working directory; output is stdout and stderr together."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--directory", str(directory)]
    command += ["--workflow-profile", str(root / "profiles/default")]
    command += ["--configfile", str(root / preset)] if preset else []
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [*command, "--cores", "2", *arguments],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1500,
    )


class Jobs(collections.Counter[str]):
    """Rule → number of jobs that a dry run lists; `runs[rule]` are the runs of a rule that has one job per run."""

    runs: dict[str, set[str]]


def dry(directory: Path, *arguments: str, **how) -> Jobs:
    """What a real run would do. Changes nothing in `directory`."""
    done = snakemake(directory, "--dry-run", *arguments, **how)
    assert done.returncode == 0, done.stdout[-3000:]
    jobs = Jobs()
    if "Nothing to be done" not in done.stdout:
        table = re.search(r"^job\s+count\n[-\s]+\n(.*?)^total", done.stdout, re.M | re.S)
        assert table, done.stdout[-3000:]
        jobs.update({line.split()[0]: int(line.split()[1]) for line in table[1].strip().splitlines()})
    jobs.runs = collections.defaultdict(set)
    for rule, block in re.findall(r"^(?:local)?rule (\w+):\n((?:    .*\n)*)", done.stdout, re.M):
        jobs.runs[rule].update(re.findall(r"^    wildcards: run=(\S+)", block, re.M))
    return jobs


def edit_preset(repository: Path, change: Callable[[dict], None]) -> None:
    path = repository / SMOKE
    preset = yaml.safe_load(path.read_text("utf-8"))
    change(preset)
    path.write_text(yaml.safe_dump(preset), "utf-8")


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of a finished smoke run. Read only: copy it with `smoke_copy` before changing anything."""
    if given := os.environ.get("LMU_SCALING_SMOKE_RUN"):  # a run that is finished already, for whoever works on tests
        yield Path(given)
        return
    directory = tmp_path_factory.mktemp("smoke")
    done = snakemake(directory)
    (directory / "snakemake.log").write_text(done.stdout)
    assert done.returncode == 0, done.stdout[-5000:]
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def smoke_copy(smoke_run: Path, tmp_path: Path) -> Path:
    """A copy with the same modification times, and Snakemake's memory of the run."""
    target = tmp_path / "copy"
    shutil.copytree(smoke_run, target, symlinks=True)
    return target


@pytest.fixture
def repository_copy(tmp_path: Path) -> Callable[[], Path]:
    """A copy of the source tree that a test may edit."""

    def copy() -> Path:
        target = tmp_path / "repository"
        wanted = (
            "Snakefile",
            "config.yaml",
            "workflow",
            "profiles",
            "envs",
            "lmu_scaling",
            "docs",
            "requirements.lock",
        )
        target.mkdir()
        for name in wanted:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target / name)
        return target

    return copy
