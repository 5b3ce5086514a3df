"""envs/install.py in a fresh environment: what has the right hash is installed and linked, anything else is refused."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.needs import ROOT

pytestmark = pytest.mark.slow
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder: Path, name: str) -> str:
    """A package of one line; returns its hash."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {f"{name}.py": "x = 1\n", f"{info}/METADATA": METADATA.format(name=name), f"{info}/WHEEL": WHEEL}
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{inside},,\n" for inside in [*files, f"{info}/RECORD"]))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    return home / "bin/python"


def install(python: Path, lock: Path) -> subprocess.CompletedProcess[str]:
    """From the folder of the lock alone: no index, no network."""
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(lock.parent), "PIP_CONFIG_FILE": os.devnull}
    command = [python, ROOT / "envs/install.py", lock]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


def test_a_lock_is_installed_by_hash_and_the_environment_is_linked_to_the_clone(python: Path, tmp_path: Path) -> None:
    digests = {name: make_wheel(tmp_path, name) for name in ("torch", "alpha", "beta")}
    lines = [f"{name}==1.0 \\\n    --hash=sha256:{digest}\n    # via test\n" for name, digest in digests.items()]
    lines.append("gamma==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "0" * 64 + "\n")
    (tmp_path / "own.lock").write_text("".join(lines))
    done = install(python, tmp_path / "own.lock")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 packages from own.lock" in done.stdout
    code = "import alpha, beta, torch, lmu_scaling, importlib.util as u; "
    code += "assert u.find_spec('snakemake_logger_plugin_lmu'); "
    found = subprocess.run(
        [python, "-c", f"{code}print(lmu_scaling.__file__)"], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert (ROOT / "lmu_scaling/__init__.py").samefile(found.stdout.strip())
    assert os.access(python.with_name("lmu-scaling"), os.X_OK)


def test_a_file_with_another_hash_is_refused_in_three_lines(python: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path, "delta")
    (tmp_path / "own.lock").write_text(f"delta==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    done = install(python, tmp_path / "own.lock")
    assert done.returncode != 0
    assert "could not install the lock" in done.stdout and "what to do" in done.stdout
    assert "HASH" in done.stderr.upper()
    assert subprocess.run([python, "-c", "import delta"], capture_output=True).returncode != 0
