"""The job `status`: which runs of an experiment are done, train, wait or failed, with loss, speed and time left.

It reads only files: on a cluster it works on the login node, while jobs run elsewhere, and after a crash.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lmu_scaling import experiment
from lmu_scaling.errors import ResultsError, UserError
from lmu_scaling.jobs import job
from lmu_scaling.runtime import duration, read_json, si
from lmu_scaling.sections import Config

AFFECTS_RESULTS = False
FRESH_SECONDS = 180.0  # a live log that is younger belongs to a running job, also where locks do not cross machines
TAIL_BYTES = 20_000
SPEED_ROWS = 20


class State(StrEnum):
    """In the order in which they are listed."""

    RUNNING = "training"
    FAILED = "failed"
    STOPPED = "stopped"  # it has a checkpoint or a live log, and no process: the next start resumes it
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True)
class RunStatus:
    """What is known of one run."""

    name: str
    state: State
    share: float = 0.0
    loss: float | None = None
    validation_loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    error: str = ""

    def line(self) -> str:
        parts = [f"loss {self.loss:.3f}" if self.loss is not None else ""]
        parts.append(f"validation {self.validation_loss:.3f}" if self.validation_loss is not None else "")
        if self.state is State.RUNNING:
            parts.append(f"{si(self.tokens_per_second)} tokens/s" if self.tokens_per_second else "")
            parts.append(f"{duration(self.seconds_left)} left" if self.seconds_left is not None else "")
        parts.append(self.error)
        return f"{self.state:<9}{self.share:>5.0%}  {', '.join(filter(None, parts))}".rstrip()


@job
def status(results: Path, /, all: bool = False) -> None:
    """Show which runs train, wait, failed or are done, with loss and time left.

    Args:
        results: folder results/<experiment>
        all: list the runs that are done or wait as well
    """
    found = statuses(results)
    if not found:
        raise ResultsError("no run of this experiment has begun", str(results), "run `snakemake --cores all` first")
    width = max(len(run.name) for run in found)
    for run in sorted(found, key=lambda run: list(State).index(run.state)):
        if all or run.state not in (State.DONE, State.WAITING):
            print(f"{run.name:<{width}}  {run.line()}")
    print(summary_line(results, found))


def summary_line(results: Path, found: list[RunStatus]) -> str:
    counts = Counter(run.state for run in found)
    said = [f"{counts[state]} {state}" for state in State if counts[state]]
    evaluated = len(list(results.glob("evaluation/*/summary.json")))
    report = "report is there" if (results / "report.html").is_file() else "no report yet"
    return f"{len(found)} runs: {', '.join(said)}; {evaluated} evaluated; {report}"


def statuses(results: Path) -> list[RunStatus]:
    """The runs that the configuration names, and all that have a folder."""
    folders = {path.parent.name for path in results.glob("training/*/spec.json")}
    planned = _planned(results)
    names = [*planned, *sorted(folders - set(planned))]
    return [run_status(results / "training" / name, results / "logs/train" / f"{name}.log") for name in names]


def _planned(results: Path) -> list[str]:
    try:
        config = Config.model_validate(read_json(results / "config.json"))
    except (UserError, ValidationError):  # not written yet, or by another version
        return []
    return [run.name for run in [*experiment.sweeps(config), *experiment.runs(config)]]


def run_status(folder: Path, log: Path | None = None) -> RunStatus:
    """What the files of `training/<run>` say."""
    result = _json(folder / "result.json")
    if result:
        diverged = "diverged" if result.get("diverged") else ""
        return RunStatus(
            folder.name, State.DONE, 1.0, result.get("final_loss"), result.get("validation_loss"), error=diverged
        )
    live = folder / "live/progress.jsonl"
    rows = list(_rows(live))
    total = _total_tokens(folder / "spec.json")
    tokens = rows[-1].get("tokens", 0) if rows else 0
    speed = _speed(rows)
    facts: dict[str, Any] = {
        "share": tokens / total if total else 0.0,
        "loss": rows[-1].get("loss") if rows else None,
        "validation_loss": next((row["validation_loss"] for row in rows[::-1] if row.get("validation_loss")), None),
        "tokens_per_second": speed,
        "seconds_left": (total - tokens) / speed if speed and total else None,
    }
    if is_running(folder / "live"):
        return RunStatus(folder.name, State.RUNNING, **facts)
    if error := last_error(log):
        return RunStatus(folder.name, State.FAILED, **facts, error=error)
    return RunStatus(folder.name, State.STOPPED if rows else State.WAITING, **facts)


def is_running(live: Path) -> bool:
    """Whether a process holds the run's lock, or wrote to its live log a moment ago."""
    for path in live.glob("lock-*"):
        try:
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no permission, or no locks on this file system
            continue
        if _locks_are_local(path):
            return False  # it was released, and this machine would know better
    log = live / "progress.jsonl"
    return log.is_file() and time.time() - log.stat().st_mtime < FRESH_SECONDS


def _locks_are_local(lock: Path) -> bool:
    """Whether the file system belongs to this machine: then a lock that can be taken is free everywhere."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return True
    place = str(lock.resolve())
    _, kind = max(((len(point), kind) for point, kind in mounts if place.startswith(point)), default=(0, ""))
    return not kind.startswith(("nfs", "lustre", "gpfs", "beegfs", "fuse", "cifs", "ceph"))


def last_error(log: Path | None) -> str:
    """The first line of the error that a job's log ends with."""
    lines = _tail(log).splitlines() if log is not None else []
    found = [line for line in lines if line.startswith("error: ")]
    if found:
        return found[-1].removeprefix("error: ")
    return lines[-1].strip() if any(line.startswith("Traceback") for line in lines) else ""


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The last rows of a live log; the first and last lines of the tail may be cut."""
    for line in _tail(path).splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _speed(rows: list[dict[str, Any]]) -> float | None:
    """Tokens per second over the last rows of one process."""
    timed = [(row["time"], row["tokens"]) for row in rows[-SPEED_ROWS:] if "time" in row and "tokens" in row]
    if len(timed) < 2 or timed[-1][0] <= timed[0][0] or timed[-1][1] <= timed[0][1]:
        return None
    return (timed[-1][1] - timed[0][1]) / (timed[-1][0] - timed[0][0])


def _total_tokens(spec: Path) -> int:
    values = _json(spec)
    try:
        return values["training"]["steps"] * values["training"]["batch"] * values["model"]["context"]
    except (KeyError, TypeError):
        return 0


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
