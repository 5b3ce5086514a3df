"""Fingerprints see meaning and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmu_scaling import provenance


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package of the same name in a scratch repository."""
    folder = tmp_path / "lmu_scaling" / "stage"
    folder.mkdir(parents=True)
    (tmp_path / "lmu_scaling" / "__init__.py").write_text('"""A package."""\n')
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from lmu_scaling.stage import b\n\ndef f(x):\n    return b.g(x) + 1\n")
    (folder / "b.py").write_text("def g(x):\n    return 2 * x\n")
    (folder / "unrelated.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    return folder


def fingerprint(module: str = "lmu_scaling.stage.a") -> str:
    for cached in (provenance.fingerprint, provenance._tree, provenance._meaning, provenance._imports):
        cached.cache_clear()
    return provenance.fingerprint(module)


@pytest.fixture(autouse=True)
def _fresh_caches() -> None:
    for cached in (provenance.fingerprint, provenance._tree, provenance._meaning, provenance._imports):
        cached.cache_clear()


def test_comments_docstrings_and_formatting_do_not_count(package: Path) -> None:
    before = fingerprint()
    (package / "a.py").write_text(
        '"""Now documented."""\n\nfrom lmu_scaling.stage import (\n    b,\n)\n\n\n'
        'def f(x):\n    """Why."""\n    # a comment\n    return (b.g(x)\n            + 1)\n'
    )
    assert fingerprint() == before


def test_an_edit_that_changes_meaning_counts(package: Path) -> None:
    before = fingerprint()
    (package / "a.py").write_text("from lmu_scaling.stage import b\n\ndef f(x):\n    return b.g(x) + 2\n")
    assert fingerprint() != before


def test_an_edit_of_an_imported_module_counts(package: Path) -> None:
    before = fingerprint()
    (package / "b.py").write_text("def g(x):\n    return 3 * x\n")
    assert fingerprint() != before


def test_an_edit_of_another_module_does_not_count(package: Path) -> None:
    before = fingerprint()
    (package / "unrelated.py").write_text("VALUE = 2\n")
    assert fingerprint() == before


def test_imports_for_type_checkers_do_not_count(package: Path) -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lmu_scaling.stage import unrelated\n"
    (package / "b.py").write_text(source + "def g(x):\n    return 2 * x\n")
    fingerprint()
    assert "lmu_scaling.stage.unrelated" not in provenance.reachable("lmu_scaling.stage.a")


def test_a_lazy_import_counts(package: Path) -> None:
    (package / "b.py").write_text(
        "def g(x):\n    from lmu_scaling.stage import unrelated\n    return unrelated.VALUE\n"
    )
    before = fingerprint()
    (package / "unrelated.py").write_text("VALUE = 5\n")
    assert fingerprint() != before


def test_c_sources_that_a_module_names_count_without_their_comments(package: Path) -> None:
    (package / "b.py").write_text('C_SOURCES = "kernels"\n\ndef g(x):\n    return 2 * x\n')
    (package / "kernels").mkdir()
    source = package / "kernels" / "k.c"
    source.write_text("int f(int x) { return x + 1; }\n")
    before = fingerprint()
    source.write_text("/* why */\nint f(int x)  { return x\n    + 1; } // a comment\n")
    assert fingerprint() == before
    source.write_text("int f(int x) { return x + 2; }\n")
    assert fingerprint() != before
