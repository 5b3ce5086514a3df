"""Whatever dies, whenever: the end is the same bytes. Short here; `python -m benchmarks.kill` is the long storm."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill import KINDS, Storm, differences

pytestmark = pytest.mark.slow


def test_after_a_storm_of_kills_all_products_are_those_of_a_calm_run(smoke_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "Sturm & Drang (ä)"
    place.mkdir()
    storm = Storm(place, kills=2 * len(KINDS), seed=1)
    storm.rage(tmp_path / "snakemake.log")
    assert sum(storm.done.values()) >= len(KINDS), f"the weather was too calm: {dict(storm.done)}"
    assert storm.restarts
    assert differences(smoke_run, place) == []
