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


def drawn(text: str) -> list[str]:
    """All lines that ever stood on the terminal, without colours and movements."""
    return [re.sub(r"\x1b\[\d*[A-Za-z]", "", line) for line in text.replace("\r", "").split("\n")]


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_a_bar_and_the_loss_of_what_trains(folder: Path, columns: int) -> None:
    code, text = on_terminal(folder, columns, "all")
    assert code == 0, text[-3000:]
    shown = drawn(text)
    assert any(re.fullmatch(r"  planning the jobs: \d+ s", line) for line in shown), "a sign of life"
    assert any(re.match(r"[█░]{20,} \d+/8 jobs", line) for line in shown), text[-3000:]
    assert any(re.fullmatch(r"  train lmu-2k-x1-s1 +50%  loss 4.321, 5 s left, 96 tokens/s", line) for line in shown)
    assert any(re.fullmatch(r"✓ train lmu-2k-x1-s1 +\d+ s  validation loss 4.250", line) for line in shown)
    for noise in ("Select jobs", "Execute", "a line that belongs into a log", "no progress can be shown"):
        assert noise not in text
    assert all(len(line) <= columns for line in shown), "no line is wrapped"
    bars = [line for line in shown if "░" in line or "█" in line]
    assert "8/8 jobs" in bars[-1], "the last bar stays"


def test_on_a_narrow_terminal_the_loss_goes_before_the_speed(folder: Path) -> None:
    code, text = on_terminal(folder, 60, "all")
    assert code == 0, text[-3000:]
    assert any(re.fullmatch(r"  train lmu-2k-x1-s1 +50%  loss 4.321, 5 s left", line) for line in drawn(text))


def test_colours_are_left_out_on_demand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32m" in on_terminal(folder, 80, "0.txt")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in on_terminal(folder, 80, "1.txt")[1]


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
