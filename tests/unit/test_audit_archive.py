"""A bundle is audited as the folder it was made from; one that would write elsewhere is refused."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import pytest

from lmu_scaling.audit.archive import unpacked
from lmu_scaling.audit.audit import audit, examine
from lmu_scaling.audit.results_folder import ResultsFolder
from lmu_scaling.errors import AuditError
from tests.unit.test_audit_checks import make


def packed(folder: Path, out: Path, **extra: str) -> Path:
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
        for name, text in extra.items():
            archive.writestr(name, text)
    return out


def fingerprint(results: Path) -> str:
    return examine(ResultsFolder(results, results.parents[1] / "paper_figures"), sample=0)["root"]


def test_a_bundle_has_the_fingerprint_of_its_folder(tmp_path: Path) -> None:
    results = make(tmp_path / "home")
    with unpacked(packed(tmp_path / "home", tmp_path / "e.zip")) as inside:
        assert fingerprint(inside) == fingerprint(results)


def test_what_was_changed_in_a_bundle_is_found(tmp_path: Path) -> None:
    make(tmp_path / "home")
    (tmp_path / "home/results/e/analysis/t.csv").write_text("x\n2\n")
    with pytest.raises(AuditError, match=r"analysis/t\.csv"):
        audit(packed(tmp_path / "home", tmp_path / "e.zip"), sample=0)


def test_the_program_in_a_bundle_is_not_unpacked(tmp_path: Path) -> None:
    make(tmp_path / "home")
    with unpacked(packed(tmp_path / "home", tmp_path / "e.zip", Snakefile="rule all:")) as results:
        assert not (results.parents[1] / "Snakefile").exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "results/../../evil"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path / "home")
    bundle = packed(tmp_path / "home", tmp_path / "e.zip", **{name: "x"})
    with pytest.raises(AuditError, match="unsafe"):
        audit(bundle, sample=0)
    assert not (tmp_path / "evil").exists() and not (Path(tempfile.gettempdir()) / "evil").exists()


def test_a_link_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "e.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        link = zipfile.ZipInfo("results/e/config.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/hostname")
    with pytest.raises(AuditError, match="unsafe"):
        audit(bundle, sample=0)


@pytest.mark.parametrize("content", [b"", b"no zip file"])
def test_a_file_that_is_no_bundle_is_called_that(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(AuditError, match="no bundle"):
        audit(tmp_path / "x.zip", sample=0)


def test_a_bundle_of_several_experiments_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "home")
    bundle = packed(tmp_path / "home", tmp_path / "e.zip", **{"results/other/config.json": "{}"})
    with pytest.raises(AuditError, match="2 experiments"):
        audit(bundle, sample=0)
