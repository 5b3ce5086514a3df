"""Exported token shards: their card, and Croissant metadata in the real mlcroissant."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from lmu_scaling.errors import ResultsError
from lmu_scaling.export.dataset import export_tokens
from lmu_scaling.runtime import write_json
from tests import toy
from tests.needs import needs


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    toy.write_tokens(tmp_path / "results/toy/tokens")
    write_json(tmp_path / "results/toy/config.json", {"corpus": {"source": "sotu"}})
    export_tokens(tmp_path / "results/toy/tokens", tmp_path / "out")
    return tmp_path / "out"


def test_shards_and_their_card_are_there(exported: Path) -> None:
    card = (exported / "README.md").read_text("utf-8")
    assert "State of the Union" in card and "public domain" in card
    assert "| train | 6,000 | 60 | 18,000 |" in card
    assert len(np.fromfile(exported / "00000.train.bin", "<u2")) == 6000


def test_a_damaged_shard_is_not_exported(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "results/toy/tokens/00000.test.bin").unlink()  # the exported one is a link to the same file
    (tmp_path / "results/toy/tokens/00000.test.bin").write_bytes(b"damaged")
    with pytest.raises(ResultsError, match="not the one in the index"):
        export_tokens(tmp_path / "results/toy/tokens", tmp_path / "again")


@needs(importlib.util.find_spec("mlcroissant"), "needs mlcroissant (make test installs it)")
def test_croissant_is_valid_and_lists_the_shards(exported: Path) -> None:
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=exported / "croissant.json")
    issues = dataset.metadata.ctx.issues
    assert not issues.errors and not issues.warnings, issues.report()
    rows = list(dataset.records("shards"))
    assert [row["shards/split"] for row in rows] == ["train", "validation", "test"]
    assert [row["shards/tokens"] for row in rows] == [6000, 1500, 1500]
    index = json.loads((exported / "index.json").read_text())
    assert {file.sha256 for file in dataset.metadata.distribution} == {shard["sha256"] for shard in index["shards"]}
