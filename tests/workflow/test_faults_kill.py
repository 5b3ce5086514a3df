"""Whatever dies, whenever: the end is the same bytes. Short here; `python -m benchmarks.kill` is the long storm."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from benchmarks.kill import KINDS, Storm, differences
from tests.workflow.conftest import snakemake

pytestmark = pytest.mark.slow


def test_after_a_storm_of_kills_all_products_are_those_of_a_calm_run(smoke_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "Sturm & Drang (ä)"
    place.mkdir()
    storm = Storm(place, kills=2 * len(KINDS), seed=1)
    storm.rage(tmp_path / "snakemake.log")
    assert sum(storm.done.values()) >= len(KINDS), f"the weather was too calm: {dict(storm.done)}"
    assert storm.restarts
    assert differences(smoke_run, place) == []


def test_a_file_that_a_killed_job_left_under_its_name_is_made_again(smoke_copy: Path) -> None:
    """Snakemake notes a job's outputs before it starts it; here the note is there and the job is not."""
    target = "results/smoke/config.json"
    note = base64.b64encode(target.encode(), b"_-").decode()
    (smoke_copy / ".snakemake/incomplete").mkdir(exist_ok=True)
    (smoke_copy / ".snakemake/incomplete" / note).touch()
    whole = (smoke_copy / target).read_bytes()
    (smoke_copy / target).write_bytes(whole[:100])
    done = snakemake(smoke_copy, "--", target)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (smoke_copy / target).read_bytes() == whole
