"""The whole workflow in miniature: every product is there. What a second run does is in test_reruns.py."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lmu_scaling.analysis.claims.common import Verdict
from tests.workflow.conftest import ROOT, dry, edit_preset, snakemake

pytestmark = pytest.mark.slow


def test_every_product_is_there(smoke_run: Path) -> None:
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    for name in config["paper"]["figures"]:
        for suffix in ("pdf", "svg", "png", "caption.rst"):
            assert (smoke_run / "paper_figures" / f"{name}.{suffix}").stat().st_size > 0, name
    for name in config["paper"]["tables"]:
        for suffix in ("tex", "csv", "md"):
            assert (smoke_run / "paper_figures" / "tables" / f"{name}.{suffix}").stat().st_size > 0, name
    results = smoke_run / "results" / "smoke"
    for name in ("report.html", "config.json", "analysis/claims.json", "analysis/runs.csv", "audit/audit.json"):
        assert (results / name).stat().st_size > 0, name
    assert not list((results / "training").glob("*/live/*/step-*")), "finished runs keep no checkpoints"


def test_nothing_unexplained_is_printed(smoke_run: Path) -> None:
    output = (smoke_run / "snakemake.log").read_text()
    assert "Traceback" not in output
    warnings = [line for line in output.splitlines() if "warning" in line.lower()]
    assert not warnings, warnings


def test_losses_are_finite_and_every_claim_has_a_verdict(smoke_run: Path) -> None:
    with open(smoke_run / "results/smoke/analysis/runs.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 2 * 2 + 2  # a further budget, an alternative
    assert all(0 < float(row["test_loss"]) < math.log(512) + 0.5 for row in rows)
    claims = json.loads((smoke_run / "results/smoke/analysis/claims.json").read_text())
    claims = claims["claims"] if isinstance(claims, dict) else claims
    assert len(claims) == 12 + 5  # C3 and C5 to C8 against the modern transformer too
    assert {claim["verdict"] for claim in claims} <= set(Verdict)


def test_the_paper_preset_has_the_papers_jobs(tmp_path: Path) -> None:
    found = dry(tmp_path, preset="workflow/presets/paper.yaml")
    # 6 sizes x (5 variants x 3 seeds, the transformer at 2, 5 and 10 times as many, 2 variants by the paper's recipe)
    runs = 6 * (5 * 3 + 3 + 1 + 1 + 2 * 3) + 4  # and 4 alternatives
    sweeps = 5 * (8 + 5 * 4) + 6 * 2 * 4
    assert found["evaluate"] == runs
    assert found["train"] == runs + sweeps


def test_a_broken_configuration_starts_nothing_and_shows_all_problems(
    tmp_path: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy()

    def spoil(preset: dict) -> None:
        preset["training"]["bacth"] = 4
        preset["training"]["steps"] = "many"
        preset["models"]["sizes"][0].update(q=40, theta=20)
        preset["corpus"]["split"] = {"train": 0.9, "validation": 0.05, "test": 0.04}
        preset["models"]["variants"] = ["lmu", "transfomer"]
        preset["training"]["alternatives"] = []

    edit_preset(repository, spoil)
    done = snakemake(tmp_path, root=repository)
    assert done.returncode != 0
    assert "5 problems" in done.stdout and "did you mean 'batch'" in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "results").exists()
