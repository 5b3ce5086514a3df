"""What a person sees: `snakemake --logger lmu` on a real (pseudo) terminal, and in a log file."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests import toy
from tests.needs import ROOT

pytestmark = pytest.mark.slow
# A run that trains for a moment, jobs that print a lot, and, if asked for, one that fails.
WORKFLOW = """
rule all:
    default_target: True
    input:
        "results/toy/training/lmu-2k-x1-s1/result.json",
        expand("{n}.txt", n=range(6)),

rule train:
    output: "results/toy/training/{run}/result.json"
    log: "{run}.log"
    shell: "bash train.sh results/toy/training/{wildcards.run} {output}"

rule chatter:
    output: "{n}.txt"
    wildcard_constraints: n="[0-9]"
    shell: "echo a line that belongs into a log; touch {output}"

rule broken:
    output: "broken.txt"
    log: "broken.log"
    shell: "(echo error: the disk is on fire; exit 3) > {log} 2>&1"
"""
TRAIN = """
mkdir -p $1/live; exec 9> $1/live/lock-0; flock 9
cp spec.json $1/spec.json
echo '{"step": 1, "tokens": 96, "loss": 5.5, "validation_loss": null, "time": 100.0}' >> $1/live/progress.jsonl
echo '{"step": 5, "tokens": 480, "loss": 4.321, "validation_loss": null, "time": 104.0}' >> $1/live/progress.jsonl
sleep 3
echo '{"final_loss": 4.0, "validation_loss": 4.25, "diverged": false}' > $2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import json

    (tmp_path / "Snakefile").write_text(WORKFLOW)
    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "spec.json").write_text(json.dumps(toy.spec("lmu", steps=10)))
    return tmp_path


def command(folder: Path, *targets: str) -> list[str]:
    words = [sys.executable, "-m", "snakemake", "--directory", str(folder), "--snakefile", str(folder / "Snakefile")]
    return [*words, "--cores", "2", "--logger", "lmu", "--show-failed-logs", "--", *targets]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'workflow/plugins'}"}


def on_terminal(folder: Path, columns: int, *targets: str) -> tuple[int, str]:
    """Exit code, and all that was written to a terminal of that width."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        command(folder, *targets), cwd=folder, env=environment(), stdin=other, stdout=other, stderr=other
    )
    os.close(other)
    written = b""
    while True:
        try:
            block = os.read(main, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        written += block
    os.close(main)
    return process.wait(), written.decode("utf-8", "replace")


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_a_bar_and_the_loss_of_what_trains(folder: Path, columns: int) -> None:
    code, text = on_terminal(folder, columns, "all")
    assert code == 0, text[-3000:]
    assert re.search(r"[█░]{5,} \d+/8 jobs", text), text[-3000:]
    assert "train lmu-2k-x1-s1: 50%, loss 4.321, 96 tokens/s, 5 s left" in text
    assert "train lmu-2k-x1-s1: " in text and "validation loss 4.250" in text
    for noise in ("Select jobs", "Execute", "a line that belongs into a log", "no progress can be shown"):
        assert noise not in text
    shown = [re.sub(r"\x1b\[\d*[A-Z]", "", line) for line in text.replace("\r", "").split("\n")]
    bars = [line for line in shown if "░" in line or "█" in line]
    assert all(len(line) <= columns for line in bars)
    assert "8/8 jobs" in bars[-1], "the last bar stays"


def test_an_error_is_shown_in_full(folder: Path) -> None:
    code, text = on_terminal(folder, 80, "broken.txt")
    assert code != 0
    assert "error: the disk is on fire" in text and "rule broken" in text


def test_a_log_file_gets_plain_lines(folder: Path) -> None:
    done = subprocess.run(command(folder, "all"), cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "\x1b" not in done.stderr and "\r" not in done.stderr
    lines = done.stderr.splitlines()
    assert sum(bool(re.match(r"\[\d/8\] ", line)) for line in lines) >= 7
    assert any(re.match(r"\[\d/8\] train lmu-2k-x1-s1: .*, validation loss 4.250", line) for line in lines)
    assert not any(line.startswith(("Select jobs", "Execute")) for line in lines)
    failed = subprocess.run(
        command(folder, "broken.txt"), cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert failed.returncode != 0 and "the disk is on fire" in failed.stderr
