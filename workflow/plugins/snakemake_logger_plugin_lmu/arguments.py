"""A target right after `--configfile FILE`: Snakemake takes it for one more file and ends with a traceback.

Plugins are imported before the command line is read, so this is where it can be explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

OPTIONS = ("--configfile", "--configfiles")


def explain_missing_configfiles(command: Sequence[str]) -> None:
    """End with three lines if Snakemake's command line names a configuration file that does not exist."""
    if "snakemake" not in Path(command[0]).parts[-2:]:  # `snakemake`, or `python -m snakemake`
        return
    for position, word in enumerate(command):
        if word in OPTIONS:
            named = list(takewhile(lambda word: not word.startswith("-"), command[position + 1 :]))
            for name in named:
                if not Path(name).exists():
                    raise SystemExit(
                        f"error: there is no configuration file {name}\n"
                        f"  where: {word} {' '.join(named)}\n"
                        f"  what to do: correct the name; if it is a target, put -- before it: ... -- {name}"
                    )
