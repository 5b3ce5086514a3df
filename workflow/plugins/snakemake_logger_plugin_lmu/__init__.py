"""What the terminal shows while the workflow runs: `snakemake --logger lmu` (`make run` uses it).

On a terminal: a bar with the time left, and one line per running job, with the loss and the speed of those that train.
Elsewhere: one plain line per finished job. Errors and warnings are shown in full in both cases. What jobs print is in
their logs; on a terminal it is not repeated.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_lmu.arguments import explain_missing_configfiles
from snakemake_logger_plugin_lmu.display import Lines, Terminal
from snakemake_logger_plugin_lmu.progress import RunningJob, WorkflowProgress

# Messages without an event that say nothing a person acts on.
NOISE = (
    "Assuming unrestricted shared filesystem",
    "Building DAG",
    "Complete log",
    "Conda environments: ignored",
    "Config file ",
    "Elapsed time",
    "Execute ",
    "Job stats",
    "Select jobs to execute",
    "Using shell",
    "host:",
    "Removing temporary output",
)
ERRORS = (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR, LogEvent.ERROR)

explain_missing_configfiles(sys.argv)


class LogHandler(LogHandlerBase):
    """Turns Snakemake's log records into progress."""

    def __post_init__(self) -> None:
        stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self.progress = WorkflowProgress()
        moving = stream.isatty() and not self.common_settings.dryrun
        self.display = Terminal(stream, self.progress) if moving else Lines(stream, self.progress)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.handle_event(getattr(record, "event", None), record)
        except Exception:  # a display must never stop a workflow
            self.handleError(record)

    def handle_event(self, event: Any, record: logging.LogRecord) -> None:
        facts = record.__dict__
        if self.common_settings.dryrun or event in ERRORS:
            if event == LogEvent.JOB_ERROR:
                self.progress.fail(facts["jobid"])
            self.display.say(self.format(record))
        elif event == LogEvent.RUN_INFO:
            self.display.say(self.progress.plan(facts["stats"]))
        elif event == LogEvent.JOB_INFO:
            self.progress.start(RunningJob.of(facts))
        elif event == LogEvent.JOB_FINISHED:
            finished = self.progress.finish(facts["job_id"])
            if finished is not None:
                self.display.finished(finished)
        elif event == LogEvent.PROGRESS:
            self.progress.done, self.progress.total = facts["done"], facts["total"]
        elif event == LogEvent.RESOURCES_INFO and facts.get("cores"):
            self.progress.cores = facts["cores"]
        elif event is None and (record.levelno >= logging.WARNING or self.is_news(record)):
            self.display.say(self.format(record))

    @staticmethod
    def is_news(record: logging.LogRecord) -> bool:
        text = str(record.msg or "").strip()
        return record.levelno >= logging.INFO and bool(text) and not text.startswith(NOISE)

    def close(self) -> None:
        self.display.close()
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        return True

    @property
    def writes_to_file(self) -> bool:
        return False

    @property
    def has_filter(self) -> bool:
        return True

    @property
    def has_formatter(self) -> bool:
        return False

    @property
    def needs_rulegraph(self) -> bool:
        return False
