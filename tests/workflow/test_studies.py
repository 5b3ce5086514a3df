"""Every published study in studies/ is verified by the audit, and is what its bundle holds."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lmu_scaling.audit.publish import readable
from tests.workflow.conftest import ROOT

STUDIES = sorted((ROOT / "studies").glob("*/*.crate.zip"))
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bundle", STUDIES, ids=lambda path: path.parent.name)
def test_the_audit_finds_no_mismatch(bundle: Path) -> None:
    command = [sys.executable, "-m", "lmu_scaling", "audit", str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: partly checked" in done.stdout, "weights and tokens are not in the bundle"


@pytest.mark.parametrize("bundle", STUDIES, ids=lambda path: path.parent.name)
def test_the_files_beside_the_bundle_are_those_inside_it(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        for name, beside in readable(bundle).items():
            assert (bundle.parent / beside).read_bytes() == archive.read(name), beside


@pytest.mark.parametrize("bundle", STUDIES, ids=lambda path: path.parent.name)
def test_no_text_no_tokens_and_no_weights_are_published(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        assert not [
            name for name in archive.namelist() if name.endswith((".bin", ".safetensors", ".zst", "source.json"))
        ]
