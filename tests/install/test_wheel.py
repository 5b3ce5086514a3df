"""The package without the clone: a wheel, installed elsewhere by pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lmu_scaling import __version__
from tests.needs import ROOT

pytestmark = pytest.mark.slow
# torch's own requirements without a GPU; with one, nvidia-*, cuda-* and triton come as well
OF_TORCH = {"filelock", "typing-extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec"}
OF_PIP = {"pip", "setuptools"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder is left in the clone."""
    scratch = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "lmu_scaling", scratch / "source/lmu_scaling", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, scratch / "source" / name)
    (scratch / "source/benchmarks").mkdir()
    (scratch / "source/benchmarks/__init__.py").touch()
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch, scratch / "source")
    return next(scratch.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds the wheel and what pip brings with it."""
    home = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    pins = re.findall(r"^(?:torch|numpy|scipy)==[^\s;\\]+", (ROOT / "requirements.lock").read_text(), re.M)
    (home / "pins.txt").write_text("\n".join(pins))
    pip("install", "--constraint", home / "pins.txt", wheel, python=home / "bin/python")
    return home / "bin/python"


def pip(*words: str | Path, python: str | Path = sys.executable) -> str:
    quiet = ["--quiet", "--disable-pip-version-check"]
    done = subprocess.run([python, "-m", "pip", words[0], *quiet, *words[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run(python: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: os.environ[key] for key in ("HOME", "OMP_NUM_THREADS") if key in os.environ}
    return subprocess.run([python, *words[1:]], cwd=folder, env=kept, capture_output=True, text=True)


def readme_example() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    return code


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"lmu_scaling-{__version__}-py3-none-any.whl"
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "lmu_scaling").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == wanted
    assert {Path(name).suffix for name in names} == {
        ".py",
        ".c",
        ".h",
        ".css",
        ".yaml",
        ".js",
        ".md",
        "",
    }  # vendored: licence, origin


def test_pip_brings_no_more_than_the_models_need(python: Path) -> None:
    code = "from importlib.metadata import distributions; [print(d.name) for d in distributions()]"
    listed = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    found = {re.sub(r"[-_.]+", "-", name).lower() for name in listed.split()}
    found = {name for name in found if not name.startswith(("nvidia-", "cuda-")) and name != "triton"}
    assert found - OF_TORCH - OF_PIP == {"lmu-scaling", "torch", "numpy", "scipy"}


def test_the_readmes_example_runs(python: Path, tmp_path: Path) -> None:
    code = readme_example()
    assert 15 <= len(code.splitlines()) <= 30
    done = run(python, "python", "-W", "error", "-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_whole_model_trains_and_generates_with_compiled_kernels(python: Path, tmp_path: Path) -> None:
    code = """
import torch
from lmu_scaling.models import resolve, variants
from lmu_scaling.models.network import build

assert variants() == ["lmu", "lmu_attention", "lstm", "transformer", "transformer_modern", "transformer_rotary"]
model = build(resolve("lmu", d=16, context=32, vocab=300, q=4, q_reduced=2), seed=1)
ids = torch.arange(64).view(2, 32)
logits = model(ids)
logits.sum().backward()
state = model.initial_state(batch=2)
for t in range(32):
    last, state = model.step(ids[:, t], state)
torch.testing.assert_close(last, logits[:, -1], atol=1e-4, rtol=1e-4)
"""
    done = run(python, "python", "-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_console_command_says_which_extra_is_missing(python: Path, tmp_path: Path) -> None:
    done = run(python.with_name("lmu-scaling"), "lmu-scaling", "--help", folder=tmp_path)
    assert done.returncode == 2
    assert "pydantic is not installed" in done.stderr and "lmu-scaling[workflow]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_console_command_knows_the_catalogues(python: Path, tmp_path: Path) -> None:
    pip("install", "pydantic", "PyYAML", "tqdm", python=python)
    listed = run(python.with_name("lmu-scaling"), "lmu-scaling", "--help", folder=tmp_path)
    assert listed.returncode == 0 and "generate" in listed.stdout, listed.stderr
    code = "from lmu_scaling.config import read; from lmu_scaling import paths; read(paths.DATASETS); read(paths.PAPER)"
    done = run(python, "python", "-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr
