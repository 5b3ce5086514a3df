"""A stranger's path: copy a finished run, lose three files, run again, verify, publish, verify elsewhere."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.proofs.kill import differences
from tests.workflow.conftest import ROOT, dry, snakemake
from tests.workflow.test_copies import copied
from tests.workflow.test_healing import products

pytestmark = pytest.mark.slow


def audit(home: Path, *flags: str, program: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "lmu_scaling", "audit", str(home / "results/smoke"), *flags]
    return subprocess.run(command, cwd=program, env=environment, capture_output=True, text=True, check=False)


def test_copy_lose_run_verify_publish_verify(smoke_run: Path, tmp_path: Path) -> None:
    home = copied(smoke_run, tmp_path / "another folder")
    lost = random.Random(7).sample(sorted(set(products(home).values())), 3)
    for name in lost:
        (home / name).unlink()
    done = snakemake(home)
    assert done.returncode == 0, f"after the loss of {lost}:\n{done.stdout[-4000:]}"
    assert differences(smoke_run, home) == [], lost
    assert dry(home) == {}

    rebuilt = snakemake(home, "--forcerun", "paper_figures/loss_vs_N.pdf", "--", "paper_figures/loss_vs_N.pdf")
    assert rebuilt.returncode == 0, rebuilt.stdout[-3000:]
    verified = audit(home)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "verdict: sound" in verified.stdout

    published = snakemake(home, "--", "bundle")
    assert published.returncode == 0, published.stdout[-3000:]
    command = [sys.executable, "-m", "lmu_scaling", "audit", str(home / "results/smoke.crate.zip")]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    assert "verdict: partly checked" in packed.stdout

    study = tmp_path / "study"
    command = [sys.executable, "-m", "lmu_scaling", "publish", str(home / "results/smoke"), "--to", str(study)]
    laid_out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert laid_out.returncode == 0, laid_out.stdout + laid_out.stderr
    for name in ("report.html", "claims.md", "runs.csv", "figures/loss_vs_N.png", "tables/table1.md"):
        assert (study / name).is_file(), name

    elsewhere = tmp_path / "elsewhere"
    with zipfile.ZipFile(home / "results/smoke.crate.zip") as archive:
        archive.extractall(elsewhere)
    there = audit(elsewhere, program=elsewhere)
    assert there.returncode == 0, there.stdout + there.stderr
    assert "verdict: partly checked" in there.stdout
    assert "tokens/00000.test.bin: left out of the bundle" in there.stdout
