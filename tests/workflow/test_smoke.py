"""The whole workflow in miniature: every product is there, nothing is done twice, and just what must rerun reruns."""

from __future__ import annotations

import collections
import csv
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import ROOT, SMOKE, snakemake

pytestmark = pytest.mark.slow


def jobs(output: str) -> collections.Counter[str]:
    """Rule → number of jobs of a dry run."""
    if "Nothing to be done" in output:
        return collections.Counter()
    table = re.search(r"^job\s+count\n[-\s]+\n(.*?)^total", output, re.M | re.S)
    assert table, output[-3000:]
    return collections.Counter({line.split()[0]: int(line.split()[1]) for line in table[1].strip().splitlines()})


def dry(directory: Path, *arguments: str, **how) -> collections.Counter[str]:
    done = snakemake(directory, "--dry-run", *arguments, **how)
    assert done.returncode == 0, done.stdout[-3000:]
    return jobs(done.stdout)


def touched_runs(directory: Path, **how) -> set[str]:
    """Names of the runs whose training a dry run would do."""
    done = snakemake(directory, "--dry-run", "--quiet", "progress", **how)
    assert done.returncode == 0, done.stdout[-3000:]
    blocks = re.findall(r"^(?:local)?rule train:.*?wildcards: run=(\S+)", done.stdout, re.M | re.S)
    return set(blocks)


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
    assert len(rows) == 4 * 2 * 2 + 1
    assert all(0 < float(row["test_loss"]) < math.log(512) + 0.5 for row in rows)
    claims = json.loads((smoke_run / "results/smoke/analysis/claims.json").read_text())
    claims = claims["claims"] if isinstance(claims, dict) else claims
    assert len(claims) == 12
    allowed = {"reproduced", "not reproduced", "inconclusive", "not testable at this scale"}
    assert {claim["verdict"] for claim in claims} <= allowed


def test_a_second_run_has_nothing_to_do(smoke_run: Path) -> None:
    assert dry(smoke_run) == {}


def test_touching_or_commenting_every_source_file_reruns_nothing(
    smoke_copy: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy()
    assert dry(smoke_copy, root=repository) == {}, "another checkout of the same code reruns nothing"
    for path in [*repository.rglob("*.py"), *repository.rglob("*.smk"), repository / "Snakefile"]:
        path.write_text(path.read_text("utf-8") + "\n# a comment\n", "utf-8")
    for path in repository.rglob("*"):
        os.utime(path)
    assert dry(smoke_copy, root=repository) == {}


def edited(repository: Path, change: Callable[[dict], None]) -> None:
    """Change the smoke preset."""
    path = repository / SMOKE
    preset = yaml.safe_load(path.read_text("utf-8"))
    change(preset)
    path.write_text(yaml.safe_dump(preset), "utf-8")


def test_one_sizes_hyper_parameter_reruns_that_sizes_jobs_and_what_follows(
    smoke_copy: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy()
    edited(repository, lambda preset: preset["models"]["sizes"][1].update(theta=60))
    found = dry(smoke_copy, root=repository)
    # theta exists in the two LMU variants only: 2 variants x (2 sweep runs + 2 seeds) of that size
    assert found["train"] == 8
    assert found["evaluate"] == 4
    assert found["tune"] == 2
    assert not {"fetch", "filter", "tokenise", "tokens_manifest", "complexity"} & set(found)
    assert {"table", "fit", "claims", "report", "audit"} <= set(found)
    names = touched_runs(smoke_copy, root=repository)
    assert names and all(re.match(r"lmu(_attention)?-6k-", name) for name in names), names


def test_changing_a_colour_redraws_figures_only(smoke_copy: Path, repository_copy: Callable[[], Path]) -> None:
    repository = repository_copy()

    def recolour(preset: dict) -> None:
        preset["paper"] = {"looks": {"lmu": {"label": "LMU", "colour": "#123456", "marker": "o"}}}

    edited(repository, recolour)
    found = dry(smoke_copy, root=repository)
    assert "figure" in found
    assert set(found) <= {"all", "figure", "paper_table", "report", "effective_config", "audit"}


def test_how_to_compute_reruns_nothing(smoke_run: Path) -> None:
    assert dry(smoke_run, "--set-resources", "train:micro_batch=2", "train:checkpoint_seconds=5") == {}


STAND_IN = """#!/bin/sh
case "$1" in
  --version) echo "conda 26.7.1" ;;
  info) echo '{"conda_prefix": "/nowhere", "platform": "linux-64", "conda_version": "26.7.1"}' ;;
  config) echo '{"get": {"channel_priority": "strict"}}' ;;
esac
"""


def test_toggling_conda_reruns_nothing(smoke_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run asks conda only for its version and settings; a stand-in that says these is enough."""
    conda = tmp_path / "bin" / "conda"
    conda.parent.mkdir()
    conda.write_text(STAND_IN)
    conda.chmod(0o755)
    monkeypatch.setenv("PATH", f"{conda.parent}:{os.environ['PATH']}")
    assert dry(smoke_run, "--use-conda") == {}


def test_a_deleted_figure_costs_one_job(smoke_copy: Path) -> None:
    target = "paper_figures/loss_vs_N.pdf"
    (smoke_copy / target).unlink()
    assert dry(smoke_copy, "--", target) == {"figure": 1}
    done = snakemake(smoke_copy, "--", target)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (smoke_copy / target).stat().st_size > 0
    assert dry(smoke_copy, "--", "bundle") == {"audit": 1, "bundle": 1}, "the audit knows the figure's old manifest"
    done = snakemake(smoke_copy, "--", "bundle")
    assert done.returncode == 0, done.stdout[-3000:]


def test_another_experiment_shares_nothing_and_destroys_nothing(
    smoke_copy: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy()
    edited(repository, lambda preset: preset.update(experiment="other"))
    found = dry(smoke_copy, root=repository)
    whole = 4 * 2 * (2 + 2) + 1  # 4 variants x 2 sizes x (2 sweep runs + 2 seeds) + 1 further budget
    assert found["train"] == whole
    before = {p: p.stat().st_mtime_ns for p in (smoke_copy / "results/smoke").rglob("*") if p.is_file()}
    done = snakemake(smoke_copy, "--", "results/other/tokens/manifest.json", root=repository)
    assert done.returncode == 0, done.stdout[-3000:]
    assert before == {p: p.stat().st_mtime_ns for p in (smoke_copy / "results/smoke").rglob("*") if p.is_file()}


def test_the_paper_preset_has_the_papers_jobs(tmp_path: Path) -> None:
    found = dry(tmp_path, preset="workflow/presets/paper.yaml")
    # 6 sizes x 4 variants x 3 seeds, and the transformer at 3 further budgets: 72 + 54
    assert found["train"] == 126
    assert found["evaluate"] == 126


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

    edited(repository, spoil)
    done = snakemake(tmp_path, root=repository)
    assert done.returncode != 0
    assert "5 problems" in done.stdout and "did you mean 'batch'" in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "results").exists()
