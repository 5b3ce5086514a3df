"""Every `snakemake` command in the documentation means what its reader thinks: files are files, targets are targets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from snakemake.cli import get_argument_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "Snakefile"]
PAGES += [*sorted((ROOT / "profiles").rglob("*.yaml")), *sorted((ROOT / "workflow/presets").glob("*.yaml"))]
# `inline code`, an indented line (two blanks end it: a remark follows), or what sbatch --wrap runs
COMMAND = re.compile(
    r"`(?:\.venv/bin/)?(snakemake [^`]+)`|^[# ]{4,}(snakemake .+?)(?:  .*)?$|--wrap '(?:exec )?(snakemake [^']+)'", re.M
)


def commands() -> list[tuple[str, str]]:
    found = [(page, match) for page in PAGES for match in COMMAND.finditer(page.read_text("utf-8"))]
    return [(page.name, next(filter(None, match.groups()))) for page, match in found]


def test_the_pages_are_read() -> None:
    assert len(commands()) > 20


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_a_documented_command_names_files_that_exist_and_targets_that_are_made(page: str, command: str) -> None:
    parsed = get_argument_parser().parse_args(shlex.split(command)[1:])
    for path in parsed.configfile or []:
        assert (ROOT / path).is_file(), f"{page}: --configfile takes {path!r}; write -- before targets"
    if parsed.workflow_profile:
        assert (ROOT / parsed.workflow_profile / "profile.yaml").is_file()
    text = "".join(path.read_text("utf-8") for path in (ROOT / "workflow/rules").glob("*.smk"))
    rules = set(re.findall(r"^(?:use )?rule (?:\w+ as )?(\w+)", text, re.M))
    for target in parsed.targets or []:
        assert target in rules or target.startswith("paper_figures/"), f"{page}: {target!r} is no target"
