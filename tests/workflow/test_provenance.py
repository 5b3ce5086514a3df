"""What is published of a finished run can be read by others: the bundle by roc-validator, Snakemake's own report."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from lmu_scaling.audit.bundle import bundle
from tests.needs import needs
from tests.unit.test_audit_provenance import validate
from tests.workflow.conftest import snakemake

pytestmark = pytest.mark.slow


@needs(importlib.util.find_spec("rocrate_validator"), "needs roc-validator (make test installs it)")
def test_the_bundle_of_a_run_is_a_valid_provenance_run_crate(smoke_run: Path, tmp_path: Path) -> None:
    bundle(smoke_run / "results/smoke", tmp_path / "crate.zip", without_weights=True)
    with zipfile.ZipFile(tmp_path / "crate.zip") as archive:
        archive.extractall(tmp_path / "crate")
    result = validate(tmp_path / "crate", tmp_path / "cache")
    assert result.passed(), "\n".join(f"{issue.check.name}: {issue.message}" for issue in result.get_issues()[:10])


def test_snakemakes_own_report_still_works(smoke_copy: Path) -> None:
    done = snakemake(smoke_copy, "--report", "report.zip")
    assert done.returncode == 0, done.stdout[-3000:]
    with zipfile.ZipFile(smoke_copy / "report.zip") as archive:
        assert any("loss_vs_N" in name or name.endswith("report.html") for name in archive.namelist())
