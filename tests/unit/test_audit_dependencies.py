"""Dependencies: pinned to the digit and by hash, from the index only; vulnerabilities are looked up where possible."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "envs/cuda.lock")
PINNED = re.compile(
    r"[A-Za-z0-9._-]+(\[[a-z0-9,-]+\])?==[0-9][A-Za-z0-9.!+_-]*( ; [^\\]+)?( --hash=sha256:[0-9a-f]{64})+"
)


def lines(name: str) -> list[str]:
    """One line per entry: continued lines are joined, notes are left out."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.M)
    return [line.strip() for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines() if line.strip()]


@pytest.mark.parametrize("name", LOCKS)
def test_every_dependency_is_pinned_by_hash_and_comes_from_the_index(name: str) -> None:
    assert lines(name)
    for line in lines(name):
        assert PINNED.fullmatch(line), f"{name}: {line[:200]}"


def test_no_package_is_pinned_twice_to_different_versions() -> None:
    pins: dict[str, str] = {}
    for name in LOCKS:
        for line in lines(name):
            if "==" in line:
                package, version = line.split(" ")[0].split("==")
                key = re.sub(r"[-_.]+", "-", package).lower()
                assert pins.setdefault(key, version) == version, key


def test_no_dependency_has_a_known_vulnerability() -> None:
    """Offline, or without pip-audit, nothing can be said: then the test is skipped, and says so."""
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed")
    command = [sys.executable, "-m", "pip_audit", "-r", str(ROOT / "requirements.lock"), "--no-deps", "-f", "json"]
    try:
        done = subprocess.run([*command, "--timeout", "10"], capture_output=True, text=True, check=False, timeout=120)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        pytest.skip("the index of vulnerabilities cannot be reached")
    bad = {entry["name"]: [v["id"] for v in entry["vulns"]] for entry in found if entry.get("vulns")}
    assert not bad


def test_the_lock_check_names_an_environment_that_is_not_in_step(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "envs", tmp_path / "envs")
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, str(tmp_path / "envs/lock.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
    path = tmp_path / "envs/train.yaml"
    path.write_text(re.sub(r"numpy==\S+", "numpy==1.0.0", path.read_text("utf-8")), "utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "not in step with requirements.lock: train.yaml\n")
