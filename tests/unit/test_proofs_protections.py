"""The table of protections matches the code, and the proof distinguishes caught from unnoticed removals."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.proofs import protections
from tests.proofs.protections import ROOT, Protection

ENTRIES = protections.read()


@pytest.mark.parametrize("file", sorted({entry.file for entry in ENTRIES}))
def test_every_protection_is_where_the_table_says_and_can_be_taken_away(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    for entry in (entry for entry in ENTRIES if entry.file == file):
        without = entry.removed(text)
        assert without != text, entry.fault
        if file.endswith(".py"):
            ast.parse(without)


@pytest.mark.parametrize("path", sorted({entry.test.partition("::")[0] for entry in ENTRIES}))
def test_every_named_test_exists(path: str) -> None:
    """By function; pytest itself checks the parameters when the proof runs."""
    defined = {node.name for node in ast.parse((ROOT / path).read_text("utf-8")).body if hasattr(node, "name")}
    named = {entry.test.partition("::")[2].partition("[")[0] for entry in ENTRIES if entry.test.startswith(f"{path}::")}
    assert named <= defined


def test_no_entry_is_there_twice_and_every_kind_of_fault_is_there() -> None:
    faults = [entry.fault for entry in ENTRIES]
    assert len(faults) == len(set(faults))
    assert {entry.group for entry in ENTRIES} == {"faults", "security", "bad data", "audit", "analysis", "trust"}


# -------------------------------------------------------------------------------------------------------- instrument
TESTS = """
import pytest
from program import half

@pytest.fixture
def working():
    assert half(4) == 2

def test_odd_numbers_are_refused():
    with pytest.raises(ValueError):
        half(3)

def test_that_looks_at_nothing():
    half(4)

def test_with_a_fixture(working):
    pass

@pytest.mark.skip(reason="never")
def test_that_is_skipped():
    half(3)
"""
PROGRAM = "def half(n):\n    if n % 2:\n        raise ValueError\n    return n // 2\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_program.py").write_text(TESTS)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("__pycache__/\nignored\n")
    (tmp_path / "ignored").write_text("")
    return tmp_path


def entry(test: str, snippet: str = "if n % 2:", replacement: str = "if False:") -> Protection:
    return Protection("Faults", "an odd number", "program.py", snippet, replacement, f"test_program.py::{test}")


@pytest.mark.parametrize(
    ("chosen", "caught"),
    [
        (entry("test_odd_numbers_are_refused"), True),
        (entry("test_that_looks_at_nothing"), False),
        (entry("test_that_is_skipped"), False),
        (entry("test_that_is_not_there"), False),
        (entry("test_with_a_fixture", "return n // 2", "return n"), False),
        (entry("test_odd_numbers_are_refused", "def half(n):", "def other(n):"), False),
    ],
    ids=["caught", "missed", "skipped", "no such test", "set-up breaks", "cannot be imported"],
)
def test_only_a_test_that_fails_counts(project: Path, chosen: Protection, caught: bool) -> None:
    files = protections.sources(project)
    assert files == [".gitignore", "program.py", "test_program.py"]
    assert protections.judge(project, files, chosen).caught is caught
    assert (project / "program.py").read_text() == PROGRAM, "only copies are changed"


def test_tests_that_do_not_pass_beforehand_prove_nothing(project: Path) -> None:
    files = protections.sources(project)
    assert protections.failing_tests(project, files, ["test_program.py::test_odd_numbers_are_refused"]) == ""
    assert "never" in protections.failing_tests(project, files, ["test_program.py::test_that_is_skipped"])
    (project / "program.py").write_text(PROGRAM.replace("n % 2", "False"))
    assert protections.failing_tests(project, files, ["test_program.py::test_odd_numbers_are_refused"])


def test_a_snippet_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 places instead of one"):
        entry("x").removed(PROGRAM * 2)
