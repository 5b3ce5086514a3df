"""The hooks of .pre-commit-config.yaml in a copy of this repository: commits are refused and accepted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import ROOT, require

pytestmark = pytest.mark.slow
HOOKS = ("ruff check", "ruff format", "snakefmt", "mypy", "environments follow the lock")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    require((ROOT / ".git").exists(), "the list of files comes from git")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for words in (["init", "-q"], ["config", "user.name", "a"], ["config", "user.email", "a@example.org"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-qm", "Copy"], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def commit(repository: Path) -> subprocess.CompletedProcess[str]:
    subprocess.run(["git", "add", "--update"], cwd=repository, check=True)
    environment = {**os.environ, "PRE_COMMIT_HOME": str(repository / ".git/pre-commit"), "NO_COLOR": "1"}
    words = ["git", "commit", "-m", "Change"]
    return subprocess.run(words, cwd=repository, env=environment, check=False, capture_output=True, text=True)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text("utf-8") + text, encoding="utf-8")


def test_a_commit_is_refused_by_each_hook_and_accepted_when_all_is_well(repository: Path) -> None:
    append(repository / "lmu_scaling/errors.py", "\nimport os\nnumber : int = 'text'\n")
    append(repository / "Snakefile", "\n\nrule  untidy:\n  output: 'x'\n")
    append(repository / "envs/train.yaml", "      - left-pad==1.0\n")
    refused = commit(repository)
    assert refused.returncode != 0
    assert failed(refused.stderr) == set(HOOKS), refused.stderr

    subprocess.run(["git", "reset", "-q", "--hard"], cwd=repository, check=True)
    append(repository / "lmu_scaling/errors.py", "\n\nANSWER: int = 42\n")
    accepted = commit(repository)
    assert accepted.returncode == 0, accepted.stderr
    assert "mypy" in accepted.stderr and not failed(accepted.stderr)


def failed(report: str) -> set[str]:
    return {name for name in HOOKS for line in report.splitlines() if line.startswith(name) and line.endswith("Failed")}
