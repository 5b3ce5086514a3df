"""One class for each kind of user error and system failure.

Every message has three lines: what happened, where, and what to do. The command line prints these lines and exits
with the class's code; the traceback goes to the log only when `LMU_SCALING_TRACEBACK=1`.
"""

from __future__ import annotations

import sys

AFFECTS_RESULTS = False


class UserError(Exception):
    """An error that is reported in three lines, without a traceback. Subclasses differ in name and exit code."""

    exit_code = 2

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(what, where, remedy)
        self.what, self.where, self.remedy = what, where, remedy

    def __str__(self) -> str:
        return f"{self.what}\n  where: {self.where}\n  what to do: {self.remedy}"


class ConfigError(UserError):
    """The configuration does not validate; `what` lists every problem at once."""


class MissingPackage(UserError):
    """A package is not installed: `pip install .` brings what the models need, extras bring the rest."""

    @classmethod
    def of(cls, error: ModuleNotFoundError) -> MissingPackage:
        return cls(
            f"the package {error.name} is not installed",
            f"the Python in {sys.prefix}",
            "pip install 'lmu-scaling[workflow]', or another extra of pyproject.toml; in a clone, `make run` does it",
        )


class CorpusError(UserError):
    """A source, archive member or document cannot be read as the configuration promises."""


class DownloadError(UserError):
    """No mirror delivered the file with the expected size and checksum."""


class TokensError(UserError):
    """Shards or their index are missing, damaged, or made by another tokenizer."""


class ModelError(UserError):
    """A model's dimensions contradict each other (for example q > theta)."""


class CheckpointError(UserError):
    """A checkpoint is damaged or belongs to another spec."""


class RunLocked(UserError):
    """Another process trains this run."""

    exit_code = 3


class Diverged(UserError):
    """The loss became NaN or stayed above its initial value; the last good state was kept."""

    exit_code = 4


class OutOfMemory(UserError):
    """Even one sequence per micro-batch does not fit."""

    exit_code = 5


class ResultsError(UserError):
    """A result is missing, duplicated, or comes from another experiment."""


class AuditError(UserError):
    """The audit found a mismatch."""

    exit_code = 6


class DiskFull(UserError):
    """The file system is full; no partial file was left under its final name."""

    exit_code = 7


class Interrupted(UserError):
    """SIGTERM or SIGUSR1 arrived; a checkpoint was written and the job can be submitted again."""

    exit_code = 75  # EX_TEMPFAIL: the scheduler's retry resumes the run
