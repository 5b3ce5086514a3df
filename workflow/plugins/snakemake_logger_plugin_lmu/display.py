"""Two ways to show progress: a block that is redrawn at the end of a terminal, and plain lines."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import TextIO

from lmu_scaling.runtime import duration, si
from lmu_scaling.training.status import RunStatus
from snakemake_logger_plugin_lmu.progress import (
    TRAIN,
    RunningJob,
    WorkflowProgress,
    finished_line,
    validation_loss,
)

EVERY = 0.5  # seconds between drawings
MOST_JOBS = 12  # lines for running jobs
NAME_WIDTH = 30  # columns for the names of jobs, until a longer one comes
WIDEST_BAR = 100
COLOURS = (
    (re.compile("█+"), "32"),
    (re.compile("░+"), "90"),
    (re.compile("^✓"), "32"),
    (re.compile(r"\d+ failed"), "31"),
)


class Lines:
    """One line per event, for log files."""

    def __init__(self, stream: TextIO, progress: WorkflowProgress) -> None:
        self.stream, self.progress = stream, progress

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def finished(self, job: RunningJob) -> None:
        width = len(str(self.progress.total))
        self.say(f"[{self.progress.done:>{width}}/{self.progress.total}] {finished_line(job)}")

    def close(self) -> None:
        pass


class Terminal:
    """A block of lines below all other text, redrawn by a thread of its own.

    What jobs print on stdout is in their logs and would tear the block apart: it goes to /dev/null. What else is
    written to stderr (by the shell, by Python) is read through a pipe and shown above the block. Names, times and
    losses stand in columns. There are no colours if NO_COLOR is set.
    """

    def __init__(self, stream: TextIO, progress: WorkflowProgress) -> None:
        self.progress = progress
        self.lock = threading.RLock()
        self.height, self.open, self.name_width = 0, True, NAME_WIDTH
        self.colours = not os.environ.get("NO_COLOR")
        stream.flush()
        self.terminal = os.dup(stream.fileno())
        self.saved = {number: os.dup(number) for number in (1, 2)}
        reading, writing = os.pipe()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(writing, 2)
        os.close(silence)
        os.close(writing)
        self.forwarding = threading.Thread(target=self._forward, args=(reading,), daemon=True)
        self.drawing = threading.Thread(target=self._redraw, daemon=True)
        self.forwarding.start()
        self.drawing.start()

    def say(self, text: str) -> None:
        with self.lock:
            self._write((self._erase() if self.open else "") + text.rstrip("\n") + "\n")
            if self.open:
                self._draw()

    def finished(self, job: RunningJob) -> None:
        if job.rule == TRAIN:
            self.say(self._colour(self._row("✓", job, brief(job.seconds), validation_loss(job))))

    def close(self) -> None:
        """Remove the block, and give stdout and stderr back."""
        with self.lock:
            if not self.open:
                return
            self.open = False
            for number, saved in self.saved.items():
                os.dup2(saved, number)
                os.close(saved)
            self._write(self._erase() + (f"{self._colour(self._bar({}))}\n" if self.progress.total else ""))
        self.forwarding.join(timeout=2)
        self.drawing.join(timeout=2)

    # ------------------------------------------------------------------------------------------------------ drawing
    def _redraw(self) -> None:
        while self.open:
            with self.lock:
                if self.open:
                    self._draw()
            time.sleep(EVERY)

    def _draw(self) -> None:
        try:
            lines = self._block()
        except Exception as error:  # a display must never stop a workflow, nor stop itself
            lines = [f"  (no progress can be shown: {type(error).__name__}: {error})"]
        width = self._width()
        self._write(self._erase() + "".join(f"{self._colour(line[:width])}\n" for line in lines))
        self.height = len(lines)

    def _block(self) -> list[str]:
        with self.progress.lock:
            running = list(self.progress.running.values())
        statuses = {job.id: job.status() for job in running}
        if not self.progress.total:
            return [f"  planning the jobs: {brief(time.monotonic() - self.progress.began)}"]
        lines = [self._bar(statuses)]
        shown = min(MOST_JOBS, max(1, self._size().lines - 3))
        lines += [self._job(job, statuses[job.id]) for job in running[:shown]]
        if len(running) > shown:
            lines.append(f"  … and {len(running) - shown} more")
        return lines

    def _erase(self) -> str:
        up = f"\x1b[{self.height}A" if self.height else ""
        self.height = 0
        return f"{up}\r\x1b[J"

    def _bar(self, statuses: dict[int, RunStatus | None]) -> str:
        progress = self.progress
        share = progress.done / progress.total if progress.total else 0.0
        left = progress.seconds_left(statuses) if self.open else None
        text = f" {progress.done}/{progress.total} jobs, {duration(time.monotonic() - progress.began)}"
        text += f", {progress.failed} failed" if progress.failed else ""
        text += f", about {duration(left)} left" if left is not None and progress.done < progress.total else ""
        room = max(5, min(WIDEST_BAR, self._width() - len(text)))
        return "█" * round(share * room) + "░" * (room - round(share * room)) + text

    def _job(self, job: RunningJob, status: RunStatus | None) -> str:
        if status is None or status.loss is None:
            return self._row(" ", job, brief(job.elapsed))
        parts = [f"loss {status.loss:.3f}"]
        if status.seconds_left is not None and status.share < 1:
            parts.append(f"{brief(status.seconds_left)} left")
        if status.tokens_per_second:
            parts.append(f"{si(status.tokens_per_second)} tokens/s")
        rows = [self._row(" ", job, f"{status.share:.0%}", ", ".join(parts[:count])) for count in (3, 2, 1)]
        return next((row for row in rows if len(row) <= self._width()), rows[-1])

    def _row(self, mark: str, job: RunningJob, amount: str, text: str = "") -> str:
        self.name_width = max(self.name_width, len(job.title))
        return f"{mark} {job.title:<{self.name_width}} {amount:>5}  {text}".rstrip()

    def _colour(self, line: str) -> str:
        for pattern, code in COLOURS if self.colours else ():
            line = pattern.sub(f"\x1b[{code}m\\g<0>\x1b[0m", line)
        return line

    def _size(self) -> os.terminal_size:
        try:
            return os.get_terminal_size(self.terminal)
        except OSError:
            return os.terminal_size((80, 24))

    def _width(self) -> int:
        return max(20, self._size().columns)

    def _write(self, text: str) -> None:
        data = text.replace("\n", "\r\n").encode()
        while data:
            data = data[os.write(self.terminal, data) :]

    def _forward(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.say(line)


def brief(seconds: float) -> str:
    """Without fractions of a second, which would flicker."""
    return duration(seconds) if seconds >= 1 else "0 s"
