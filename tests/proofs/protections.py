"""Prove that every protection is tested: remove it in a copy of the tree, and its test must fail (mutation testing).

    python -m tests.proofs.protections --jobs 2           # all of tests/proofs/protected/, 15 minutes on two cores
    python -m tests.proofs.protections --only checkpoint  # entries with this word in fault, file or test
    python -m tests.proofs.protections --unit             # only entries that need no finished workflow

First, all named tests must pass in an unchanged copy. Then each entry gets a fresh copy with one snippet replaced. Only
an assertion or exception inside the test counts as caught; a skipped test, or an error in collection or set-up, does
not. Exit code 1 if the removal of a protection goes unnoticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).with_name("protected")
FAILED = 1  # pytest's exit code when tests ran and some failed; usage and collection errors have others
TIMEOUT = 600  # [s] for one test: a program may hang without its protection


@dataclass(frozen=True)
class Protection:
    """`snippet` of `file` protects against `fault`; `test` must fail when it is replaced by `replacement`."""

    group: str
    fault: str
    file: str
    snippet: str
    replacement: str
    test: str

    def removed(self, text: str) -> str:
        """The file's text without the protection."""
        if text.count(self.snippet) != 1:
            raise ValueError(f"{self.file}: {text.count(self.snippet)} places instead of one read {self.snippet!r}")
        return text.replace(self.snippet, self.replacement)

    @property
    def needs_workflow(self) -> bool:
        return self.test.startswith("tests/workflow/")

    def mentions(self, word: str) -> bool:
        return word.lower() in f"{self.group} {self.fault} {self.file} {self.test}".lower()


class CaseOutcome(NamedTuple):
    """What pytest reported about one test; the outcome is passed, failure, error or skipped."""

    test: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """Result of removing a protection."""

    caught: bool
    what: str
    seconds: float


def read(tables: Path = TABLES) -> list[Protection]:
    """Read all tables. `protects` occurs exactly once in `file`; when `without` replaces it, `test` must fail."""
    return [
        Protection(
            path.stem[2:].replace("_", " "),  # after the number that orders the tables
            *(entry[key] for key in ("fault", "file", "protects", "without", "test")),
        )
        for path in sorted(tables.glob("*.yaml"))
        for entry in yaml.safe_load(path.read_text("utf-8"))
    ]


# ------------------------------------------------------------------------------------------------------------ copies
def sources(root: Path) -> list[str]:
    """Every file of the tree that git does not ignore, committed or not."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in found.split("\0") if name and (root / name).is_file()]


@contextmanager
def copy(root: Path, files: Iterable[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lmu-protections-") as scratch:
        target = Path(scratch, "tree")
        for name in files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
        yield target


# ------------------------------------------------------------------------------------------------------------- tests
def run_tests(tree: Path, tests: Iterable[str], timeout: int = TIMEOUT) -> tuple[int, list[CaseOutcome], str]:
    """pytest's exit code, the outcome of every test, and the printed text."""
    report = tree.parent / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    command += [f"--timeout={timeout}", f"--junitxml={report}", f"--basetemp={tree.parent / 'tmp'}"]
    # no .pyc files: a replacement of the same length within the same second would go unnoticed
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    done = subprocess.run([*command, *tests], cwd=tree, env=environment, capture_output=True, text=True, check=False)
    found = list(_outcomes(report)) if report.is_file() else []
    return done.returncode, found, done.stdout + done.stderr


def _outcomes(report: Path) -> Iterator[CaseOutcome]:
    for case in ElementTree.parse(report).iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        reason = "" if bad is None else " ".join(bad.get("message", "").split())
        yield CaseOutcome(case.get("name", "?"), "passed" if bad is None else bad.tag, reason)


def failing_tests(root: Path, files: list[str], tests: list[str]) -> str:
    """Tests that fail or are skipped in the unchanged tree, with reasons; empty if all pass."""
    with copy(root, files) as tree:
        code, found, output = run_tests(tree, tests)
    bad = [f"{case.test}: {case.outcome}: {case.reason}" for case in found if case.outcome != "passed"]
    return "" if code == 0 and not bad else "\n".join(bad) or output[-3000:]


def judge(root: Path, files: list[str], entry: Protection) -> Verdict:
    """Remove the protection and run its test."""
    begun = time.monotonic()
    with copy(root, files) as tree:
        place = tree / entry.file
        place.write_text(entry.removed(place.read_text("utf-8")), "utf-8")
        code, found, output = run_tests(tree, [entry.test])
    failures = [case.reason for case in found if case.outcome == "failure"]
    caught = code == FAILED and bool(failures)
    words = failures or [case.reason or case.outcome for case in found] or output.strip().splitlines()[-1:] or ["?"]
    return Verdict(caught, words[0], time.monotonic() - begun)


def smoke_run(place: Path) -> Path:
    """Run the smoke workflow, which the tests in tests/workflow/ share."""
    command = [sys.executable, "-m", "snakemake", "--directory", str(place), "--cores", "2"]
    command += ["--workflow-profile", "profiles/default", "--configfile", "workflow/presets/smoke.yaml"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the smoke workflow failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return place


# ------------------------------------------------------------------------------------------------------------ report
def prove(chosen: list[Protection], jobs: int) -> int:
    files = sources(ROOT)
    tests = list(dict.fromkeys(entry.test for entry in chosen))
    if problem := failing_tests(ROOT, files, tests):
        print(f"not all tests pass in the unchanged tree:\n{problem}")
        return 1
    print(
        f"{len(tests)} tests pass in the unchanged tree; now removing {len(chosen)} protections, one at a time",
        flush=True,
    )
    missed, group = [], ""
    with ThreadPoolExecutor(jobs) as pool:
        for entry, verdict in zip(chosen, pool.map(lambda entry: judge(ROOT, files, entry), chosen), strict=True):
            if entry.group != group:
                print(f"\n{entry.group}")
                group = entry.group
            print(f"  {'caught' if verdict.caught else 'MISSED'}  {verdict.seconds:5.0f} s  {entry.fault}")
            print(
                f"            {entry.file}; {entry.test.rpartition('/')[2]}\n            {verdict.what[:150]}",
                flush=True,
            )
            missed += [] if verdict.caught else [entry.fault]
    print(f"\n{len(chosen)} protections, {len(chosen) - len(missed)} removals caught")
    for fault in missed:
        print(f"  removal goes unnoticed: {fault}")
    return int(bool(missed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="entries that mention one of these")
    parser.add_argument("--unit", action="store_true", help="skip entries whose test needs a finished workflow")
    parser.add_argument("--jobs", type=int, default=1, help="protections removed in parallel")
    arguments = parser.parse_args()
    chosen = [entry for entry in read() if any(map(entry.mentions, arguments.only))]
    chosen = [entry for entry in chosen if not (arguments.unit and entry.needs_workflow)]
    if not chosen:
        parser.error(f"no entry mentions {' or '.join(arguments.only)}")
    if not any(entry.needs_workflow for entry in chosen) or os.environ.get("LMU_SCALING_SMOKE_RUN"):
        return prove(chosen, arguments.jobs)
    with tempfile.TemporaryDirectory(prefix="lmu-smoke-") as place:
        os.environ["LMU_SCALING_SMOKE_RUN"] = str(smoke_run(Path(place)))
        return prove(chosen, arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
