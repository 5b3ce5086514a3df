"""Hostile names: a folder, a corpus file and a label that a careless shell would execute."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lmu_scaling.runtime import read_json
from tests.workflow.conftest import snakemake

pytestmark = pytest.mark.slow
EVIL = "a b; touch pwned; $(touch pwned) `touch pwned` 'q' \"qq\" & ü"
LABEL = "<script>alert(1)</script> $(touch pwned) ' \" {braces} %s"


def test_neither_folder_nor_file_nor_label_is_executed(tmp_path: Path) -> None:
    place = tmp_path / EVIL
    texts = place / f"texts {EVIL}"
    texts.mkdir(parents=True)
    words = "the union of the states " * 200
    lines = [json.dumps({"text": f"{i} {words} {EVIL}", "meta": {"title": LABEL}}) for i in range(400)]
    (texts / f"{EVIL}.jsonl").write_text("\n".join(lines), "utf-8")
    overlay = tmp_path / "overlay.yaml"
    looks = {name: {"label": LABEL, "colour": "#0072b2", "marker": "o"} for name in ("lmu", "transformer")}
    settings = {
        "experiment": "hostile",
        "corpus": {"source": "local", "path": str(texts), "filters": [{"name": "length", "min_characters": 10}]},
        "models": {"variants": ["lmu"], "sizes": [{"name": "2k", "d": 8}, {"name": "6k", "d": 16}]},
        "training": {"recipe": "paper", "seeds": [1], "steps": 5, "budgets": []},
        "paper": {"looks": looks},
    }
    smoke = yaml.safe_load((Path(__file__).parents[2] / "workflow/presets/smoke.yaml").read_text())
    for section in ("tokens", "models", "training", "evaluation", "analysis"):
        settings[section] = {**smoke.get(section, {}), **settings.get(section, {})}
    overlay.write_text(yaml.safe_dump(settings, allow_unicode=True), "utf-8")
    done = snakemake(
        place, "--", "paper_figures/training_curves.svg", "results/hostile/evaluation/lmu-2k-x1-s1/summary.json",
        preset=str(overlay),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert not list(tmp_path.rglob("pwned*")), "something was executed"
    assert not (Path.cwd() / "pwned").exists()
    drawn = (place / "paper_figures/training_curves.svg").read_text("utf-8")
    assert "<script" not in drawn
    shutil.rmtree(place)


def test_an_edited_text_is_read_anew(tmp_path: Path) -> None:
    """Without this, "nothing to be done" would be said of results that belong to another text."""
    text, overlay = tmp_path / "texts {part}" / "a{b}.jsonl", tmp_path / "overlay.yaml"
    text.parent.mkdir()
    overlay.write_text(yaml.safe_dump({"experiment": "own", "corpus": {"source": "local", "path": str(text.parent)}}))
    seen = []
    for start in (0, 500):
        lines = [json.dumps({"text": f"{start + i} " + "the union of the states " * 20}) for i in range(400)]
        text.write_text("\n".join(lines), "utf-8")
        done = snakemake(tmp_path, "--", "results/own/corpus/source.json", preset=str(overlay))
        assert done.returncode == 0, done.stdout[-4000:]
        seen.append(read_json(tmp_path / "results/own/corpus/source.json")["identity"])
    assert seen[0] != seen[1]
    again = snakemake(tmp_path, "--", "results/own/corpus/source.json", preset=str(overlay))
    assert "Nothing to be done" in again.stdout


def test_the_repository_may_lie_in_a_folder_with_blanks_and_umlauts(
    tmp_path: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy().rename(tmp_path / "Eigene Programme; touch pwned (ä)")
    done = snakemake(tmp_path, "--", "results/smoke/config.json", root=repository)
    assert done.returncode == 0, done.stdout[-4000:]
    assert not list(tmp_path.rglob("pwned"))
