"""After kills the results are the same bytes. `python -m tests.proofs.kill` is the long form."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.proofs.kill import KINDS, KillStorm, differences
from tests.slurm.cluster import wait_for
from tests.workflow.conftest import ROOT, snakemake

pytestmark = pytest.mark.slow
RUN = "results/smoke/training/transformer-2k-x1-s1"


@pytest.mark.timeout(3600)  # 8 kills, and a whole workflow, on a machine that has other things to do
def test_after_random_kills_all_products_equal_those_of_an_undisturbed_run(smoke_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "Sturm & Drang (ä)"
    folder.mkdir()
    storm = KillStorm(folder, kills=2 * len(KINDS), seed=1)
    storm.run(tmp_path / "snakemake.log")
    assert sum(storm.done.values()) >= len(KINDS), f"the workflow ended after too few kills: {dict(storm.done)}"
    assert storm.restarts
    assert differences(smoke_run, folder) == []


def test_a_file_that_a_killed_job_left_under_its_name_is_made_again(smoke_copy: Path) -> None:
    """Snakemake records a job's outputs before starting it; here the record exists and the job does not."""
    target = "results/smoke/config.json"
    note = base64.b64encode(target.encode(), b"_-").decode()
    (smoke_copy / ".snakemake/incomplete").mkdir(exist_ok=True)
    (smoke_copy / ".snakemake/incomplete" / note).touch()
    whole = (smoke_copy / target).read_bytes()
    (smoke_copy / target).write_bytes(whole[:100])
    done = snakemake(smoke_copy, "--", target)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (smoke_copy / target).read_bytes() == whole


def test_ctrl_c_ends_all_jobs_and_the_same_command_goes_on(smoke_run: Path, smoke_copy: Path, tmp_path: Path) -> None:
    """A terminal sends SIGINT to Snakemake and to its jobs alike."""
    folder, storm = smoke_copy / RUN, KillStorm(smoke_copy, kills=0, seed=0)
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.unlink()
    printed = tmp_path / "printed"
    with open(printed, "wb") as file:
        process = subprocess.Popen(
            storm.command(),
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # a parent in the background of a shell ignores SIGINT, and children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        wait_for(lambda: len(list(folder.glob("live/*/step-*"))) >= 2, "checkpoints", every=0.005)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) != 0
    finally:
        storm.clean_up(process)
    said = printed.read_text()
    assert said.rstrip().endswith("Run the same command to go on where it stopped."), said[-3000:]
    assert "Traceback" not in said
    assert not list((smoke_copy / ".snakemake/locks").glob("*")), "no `snakemake --unlock` is needed"

    done = snakemake(smoke_copy)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "resuming at step" in (smoke_copy / "results/smoke/logs/train" / f"{folder.name}.log").read_text()
    assert differences(smoke_run, smoke_copy) == []
