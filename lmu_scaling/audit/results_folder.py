"""The files under audit, by name: `analysis/runs.csv`, `paper_figures/loss_vs_N.pdf`. This module only reads."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmu_scaling.errors import AuditError, UserError
from lmu_scaling.manifests import SUFFIX, absolute, find, read_sealed
from lmu_scaling.runtime import read_json, sha256_file

FIGURES = "paper_figures"
RECORD = "audit/audit.json"
BUNDLE = "bundle.json"
# Written by the audit and covered by its manifest.
AUDIT_FILES = (RECORD, "audit/audit.md", f"audit/audit{SUFFIX}")
# The report of an audit that failed; the next one that succeeds removes it.
FAILED = "audit/failed.md"
# Snakemake's memory of the experiment (lmu_scaling/records.py), written after the audit. It holds no result.
RECORDS = "snakemake.json"
# The lock of the Snakemake that works on the experiment (workflow/rules/start.smk).
LOCK_FILES = (".lock", ".lock.held")
# Logs of jobs that run during or after the audit: no checksum can cover them.
UNRECORDED = tuple(
    f"{folder}/{rule}.{suffix}"
    for rule in ("audit", "plan", "rehearsal", "bundle")
    for folder, suffix in (("logs", "log"), ("benchmarks", "tsv"))
)
# A plan may be made again at any time: its manifest covers it, the inventory does not.
PLAN_FILES = ("planning/plan.json", "planning/plan.md", f"planning/plan{SUFFIX}")
OUTSIDE_INVENTORY = (*AUDIT_FILES, FAILED, RECORDS, *LOCK_FILES, *PLAN_FILES, *UNRECORDED, BUNDLE)


@dataclass(frozen=True)
class Finding:
    """A result of a check: a `mismatch` fails the audit, what is `unseen` makes it partial, a `note` does neither."""

    check: str
    where: str
    what: str
    level: str = "mismatch"


@dataclass
class ResultsFolder:
    """`results/<experiment>`, and the figures made from it if they are available."""

    results: Path
    figures: Path | None = None
    problems: list[Finding] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    parsed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.results.is_dir():
            raise AuditError("there is no such folder", str(self.results), "name a folder results/<experiment>")
        if not any(self.results.rglob(f"*{SUFFIX}")):
            raise AuditError(
                "there is nothing to audit: no job has left a manifest in this folder",
                str(self.results),
                "name a folder results/<experiment> of a run that has started",
            )
        if inside := self._experiments():
            what = f"this is not the folder of an experiment, but holds {len(inside)}: {', '.join(inside[:3])}"
            raise AuditError(what, str(self.results), f"name one of them: {self.results / inside[0]}")

    def _experiments(self) -> list[str]:
        """Folders of experiments inside, if this is not one itself."""
        config = Path(f"config{SUFFIX}")
        if (self.results / config).exists():
            return []
        return sorted(path.parent.relative_to(self.results).as_posix() for path in self.results.rglob(config.name))

    @functools.cached_property
    def files(self) -> dict[str, Path]:
        """Every file by name. A link out of the folder is reported and not followed."""
        found = dict(self._walk(self.results, ""))
        if self.figures is not None and self.figures.is_dir():
            found |= dict(self._walk(self.figures, f"{FIGURES}/"))
        homes = [folder.resolve() for folder in (self.results, self.figures) if folder is not None]
        for name, path in list(found.items()):
            if not any(path.resolve().is_relative_to(home) for home in homes):
                self.problems.append(Finding("links", name, "is a link out of the folder: not read"))
                del found[name]
        return dict(sorted(found.items()))

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Absolute path → name."""
        return {str(absolute(path)): name for name, path in self.files.items()}

    def sha256(self, name: str) -> str:
        """Checksum of a file, computed once."""
        if name not in self.digests:
            try:
                self.digests[name] = sha256_file(self.files[name])
            except OSError as error:
                remedy = (
                    "if the workflow is running, wait until it ends; else check the disk and the file's permissions"
                )
                raise AuditError(f"cannot be read: {error.strerror}", str(self.files[name]), remedy) from error
        return self.digests[name]

    @functools.cached_property
    def manifests(self) -> dict[str, dict[str, Any]]:
        """Every valid manifest; an unreadable or changed one is reported."""
        found = {}
        for name, path in self.files.items():
            if name.endswith(SUFFIX) and name not in AUDIT_FILES:
                try:
                    found[name] = read_sealed(path)
                except UserError as error:
                    self.problems.append(Finding("seals", name, error.what))
        return found

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        """The outcome of the last audit; empty if there was none."""
        if RECORD not in self.files:
            return {}
        try:
            return read_sealed(self.files[RECORD])
        except UserError as error:
            self.problems.append(Finding("seals", RECORD, error.what))
            return {}

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        return self.json("config.json") or {}

    @functools.cached_property
    def left_out(self) -> set[str]:
        """Files that a bundle omits, as listed in `bundle.json`."""
        if BUNDLE not in self.files:
            return set()
        try:
            return set(read_sealed(self.files[BUNDLE])["left_out"])
        except UserError as error:
            self.problems.append(Finding("seals", BUNDLE, error.what))
            return set()

    @property
    def experiment(self) -> str:
        return str(self.config.get("experiment", self.results.resolve().name))

    def json(self, name: str) -> Any:
        """A JSON file, or None if it is absent or damaged."""
        if name in self.files and name not in self.parsed:
            try:
                self.parsed[name] = read_json(self.files[name])
            except UserError as error:
                self.problems.append(Finding("readable", name, error.what))
                self.parsed[name] = None
        return self.parsed.get(name)

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
        """Files; whatever else there is, and is therefore not read, is reported."""
        for where, folders, names in os.walk(folder):
            for name in (*names, *(name for name in folders if Path(where, name).is_symlink())):
                path = Path(where, name)
                label = prefix + path.relative_to(folder).as_posix()
                if path.is_file():
                    yield label, path
                else:
                    self.problems.append(Finding("files", label, f"is {_special(path)}: not read", "unseen"))

    def name_of(self, entry: dict[str, Any], manifest: str) -> str | None:
        """Name of the file that a manifest's entry refers to; None if it does not belong to this experiment."""
        path = find(entry, self.files[manifest])
        if path is None or entry.get("in"):
            return None
        if (name := self.names.get(str(path))) is not None:
            return name
        for folder, prefix in ((self.results, ""), (self.figures, f"{FIGURES}/")):
            if folder is not None and path.is_relative_to(absolute(folder)):
                return prefix + path.relative_to(absolute(folder)).as_posix()
        return self.moved(entry["path"])

    def moved(self, path: str) -> str | None:
        """Name from the path at the time of writing: figures and results may have been moved apart since."""
        parts = Path(path).parts
        if FIGURES in parts:
            return "/".join([FIGURES, *parts[parts.index(FIGURES) + 1 :]])
        if "results" in parts and parts[parts.index("results") + 1 :][:1] == (self.experiment,):
            return "/".join(parts[parts.index("results") + 2 :])
        return None


def _special(path: Path) -> str:
    """What a path is if it is neither a file nor a folder."""
    if path.is_symlink():
        return "a link to a folder" if path.is_dir() else "a link to nothing"
    mode = path.lstat().st_mode
    kinds = {"a pipe": stat.S_ISFIFO, "a socket": stat.S_ISSOCK}
    return next((kind for kind, test in kinds.items() if test(mode)), "a device")


def default_figures(results: Path) -> Path | None:
    """`paper_figures` beside `results`, as in the workflow and in a bundle."""
    beside = absolute(results).parent.parent / FIGURES
    return beside if beside.is_dir() else None
