"""After kills the results are the same bytes. `python -m tests.proofs.kill` is the long form."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.proofs.kill import KINDS, KillStorm, differences
from tests.workflow.conftest import snakemake

pytestmark = pytest.mark.slow


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
