"""An audit that cannot be talked round: a forged value in any kind of product, with renewed checksums, is found."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling import manifests
from lmu_scaling.audit import consistency
from lmu_scaling.audit.audit import MISMATCH, SOUND, examine
from lmu_scaling.audit.checksums import shards
from lmu_scaling.audit.replay import NO_RESULT, ON_TRUST, changed_modules, replay
from lmu_scaling.audit.results_folder import Finding, ResultsFolder
from lmu_scaling.audit.retokenize import retokenized
from lmu_scaling.manifests import absolute
from lmu_scaling.runtime import sha256_file
from tests.workflow.conftest import ROOT
from tests.workflow.forging import falsify, renew
from tests.workflow.test_healing import products

pytestmark = pytest.mark.slow
RUN = "lmu-2k-x1-s1"
CHECKS = (consistency.data, consistency.runs, consistency.evaluations, consistency.tables)
# What no mode finds: a measurement is another one each time (docs/reliability.md).
TRUSTED = {("complexity", "out")}


@pytest.fixture(scope="module")
def forged(smoke_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without its audits, as a forger would hand it over; tests restore what they change."""
    home = tmp_path_factory.mktemp("forged")
    for name in ("results", "paper_figures"):
        shutil.copytree(smoke_run / name, home / name)
    shutil.rmtree(home / "results/smoke/audit")
    return home


def folder_of(home: Path) -> ResultsFolder:
    return ResultsFolder(home / "results/smoke", home / "paper_figures")


def concerned(folder: ResultsFolder, name: str) -> Iterator[str]:
    """Manifests of jobs that wrote or read a file, and are made again by a full audit."""
    for manifest, content in folder.manifests.items():
        groups = [*content["inputs"].values(), *content["outputs"].values()]
        listed = {folder.name_of(entry, manifest) for entries in groups for entry in entries}
        reads_shards = content["job"] == "evaluate" and name in shards(folder)
        if (name in listed or reads_shards) and content["job"] not in (*ON_TRUST, *NO_RESULT):
            yield manifest


def found(home: Path, name: str) -> list[Finding]:
    """What a full audit, or one that makes the tokens again, finds about one file.

    These are its checks of content, and the jobs that made or read it.
    """
    folder = folder_of(home)
    findings = [finding for check in CHECKS for finding in check(folder)]
    for manifest in concerned(folder, name):
        findings += replay(folder, manifest)
        if any(finding.level == "mismatch" for finding in findings):
            break
    else:
        findings += retokenized(folder)
    return [finding for finding in findings if finding.level == "mismatch"]


def kinds() -> list[tuple[str, str]]:
    """Jobs and roles of outputs, from the handlers themselves: a new output needs a test, and has it."""
    from lmu_scaling.audit.completeness import expected_jobs
    from lmu_scaling.jobs import find

    declared = [(job, p.name) for job in sorted(expected_jobs()) for p in find(job).parameters if p.source == "output"]
    in_folders = {
        "deduplicate": ("drops", "report", "selection"),
        "shard": ("train", "validation", "test", "counts", "histogram"),
        "encode": ("counts",),
    }
    return declared + [(job, role) for job, roles in in_folders.items() for role in roles]


FOLDERS = {
    ("deduplicate", "drops"): "results/smoke/tokens/drops.npy",
    ("deduplicate", "report"): "results/smoke/tokens/report.csv",
    ("deduplicate", "selection"): "results/smoke/tokens/selection.json",
    ("shard", "train"): "results/smoke/tokens/00000.train.bin",
    ("shard", "validation"): "results/smoke/tokens/00000.validation.bin",
    ("shard", "test"): "results/smoke/tokens/00001.test.bin",
    ("shard", "counts"): "results/smoke/tokens/00000.json",
    ("shard", "histogram"): "results/smoke/tokens/00000.counts.npy",
    ("encode", "counts"): "results/smoke/tokens/parts/00000.json",
}


@pytest.mark.parametrize("kind", kinds(), ids="-".join)
def test_a_forged_value_in_a_product_of_any_kind_is_found(forged: Path, kind: tuple[str, str]) -> None:
    file = FOLDERS.get(kind) or products(forged)[kind]
    path = forged / file
    lists = [p for p in forged.rglob(f"*{manifests.SUFFIX}") if path.name in p.read_text("utf-8")]
    whole = {p: p.read_bytes() for p in (path, *lists)}
    try:
        falsify(path)
        renew(forged / "results/smoke", forged / "paper_figures", {absolute(path)})
        detected = found(forged, file.removeprefix("results/smoke/"))
    finally:
        for p, content in whole.items():
            p.write_bytes(content)
    assert bool(detected) == (kind not in TRUSTED), f"{file}: correct the documentation, or the audit"


# ------------------------------------------------------------------------------------------------------ whole audits
def test_a_finished_run_is_sound_when_everything_is_made_again(forged: Path) -> None:
    record = examine(folder_of(forged), sample=1, full=True, retokenize=True)
    assert record["verdict"] == SOUND, record["mismatches"] + record["unseen"]
    assert any("trained as their spec says" in text for text in record["on_trust"])
    assert not any("corpus" in text for text in record["on_trust"]), "it was made again"


def test_a_finished_run_is_sound_from_the_command_line_on_any_number_of_threads(smoke_run: Path) -> None:
    """The workflow's jobs have one thread; a user's shell lets the libraries of linear algebra take all cores."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    command = [sys.executable, "-m", "lmu_scaling", "audit", str(smoke_run / "results/smoke"), "--full"]
    done = subprocess.run(
        [*command, "--retrain", RUN], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: sound" in done.stdout and f"(trained again: {RUN})" in done.stdout


@pytest.fixture
def copy(forged: Path, tmp_path: Path) -> Path:
    shutil.copytree(forged, tmp_path / "copy")
    return tmp_path / "copy"


def rewrite(path: Path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def verdict(home: Path, full: bool = False) -> dict[str, Any]:
    renew(home / "results/smoke", home / "paper_figures")
    return examine(folder_of(home), sample=0, full=full)


def test_the_default_mode_finds_other_verdicts_fits_multipliers_and_tables(copy: Path) -> None:
    results = copy / "results/smoke"
    names = ("analysis/claims.json", "analysis/claims.md", "analysis/multipliers.csv", "analysis/fits.json")
    for name in names:
        falsify(results / name)
    falsify(copy / "paper_figures/tables/fits.tex")
    record = verdict(copy)
    assert record["verdict"] == MISMATCH
    where = {entry["where"] for entry in record["mismatches"]}
    assert {*names, "paper_figures/tables/fits.tex"} <= where


def test_the_default_mode_says_what_it_compared_by_checksum_only(copy: Path) -> None:
    falsify(copy / "paper_figures/loss_vs_N.png")
    record = verdict(copy)
    assert record["verdict"] != MISMATCH, "a renewed checksum"
    (told,) = [text for text in record["on_trust"] if "checksum only" in text]
    assert "evaluate (" in told and "figure (" in told and "--full" in told and "claims" not in told
    record = verdict(copy, full=True)
    assert record["verdict"] == MISMATCH
    assert not any("checksum only" in text for text in record["on_trust"])


def test_seeds_that_change_places_are_found(copy: Path) -> None:
    """The evaluations of two seeds, with hashes renewed: their weights tell them apart."""
    one, two = (copy / f"results/smoke/evaluation/lmu-2k-x1-s{seed}" for seed in (1, 2))
    for name in ("per_token.parquet", "sequences.parquet"):
        first, second = (one / name).read_bytes(), (two / name).read_bytes()
        (one / name).write_bytes(second)
        (two / name).write_bytes(first)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (one, two)]
    for folder, own, other in ((one, *summaries), (two, *reversed(summaries))):
        rewrite(folder / "summary.json", lambda s, own=own, other=other: s.update(other, spec_hash=own["spec_hash"]))
    renew(copy / "results/smoke", copy / "paper_figures")
    folder = folder_of(copy)
    assert [f for f in replay(folder, f"evaluation/{RUN}/evaluate{manifests.SUFFIX}") if f.level == "mismatch"]


@pytest.mark.parametrize(
    ("manifest", "old", "new"),
    [
        (f"evaluation/{RUN}/evaluate", "64", "4"),  # fewer sequences
        ("analysis/fits", "200", "100"),  # fewer draws
        ("analysis/claims", "0.95", "0.5"),  # narrower intervals
    ],
)
def test_a_job_that_ran_with_other_settings_than_the_configurations_is_found(
    copy: Path, manifest: str, old: str, new: str
) -> None:
    """The results agree with the command in the manifest, but not with config.json."""
    path = copy / f"results/smoke/{manifest}{manifests.SUFFIX}"
    content = json.loads(path.read_text())
    content["command"] = [new if word == old else word for word in content["command"]]
    manifests.write_sealed(path, content)
    folder = folder_of(copy)
    found = list(replay(folder, f"{manifest}{manifests.SUFFIX}"))
    assert any(finding.check == "settings" for finding in found)


def test_a_job_that_hides_behind_other_code_is_not_called_sound(copy: Path) -> None:
    path = copy / f"results/smoke/analysis/claims{manifests.SUFFIX}"
    falsify(copy / "results/smoke/analysis/claims.json")
    content = json.loads(path.read_text())
    module = next(name for name in content["sources"] if name.startswith("analysis.claims"))
    content["sources"][module] = "0" * 12
    manifests.write_sealed(path, content)
    assert changed_modules(content) == [module]
    record = verdict(copy)
    assert record["verdict"] != SOUND
    assert any(entry["where"] == "analysis/claims.json" for entry in record["unseen"] + record["mismatches"])


def test_tokens_that_were_forged_together_with_their_index_are_found_when_they_are_made_again(copy: Path) -> None:
    tokens = copy / "results/smoke/tokens"
    shard = tokens / "00000.train.bin"
    falsify(shard)
    digest = sha256_file(shard)
    for name in ("00000.json", "index.json"):
        old = json.loads((copy / f"results/smoke/tokens/00000{manifests.SUFFIX}").read_text())
        known = next(e["sha256"] for es in old["outputs"].values() for e in es if e["path"].endswith("train.bin"))
        path = tokens / name
        path.write_text(path.read_text().replace(known, digest))
    renew(copy / "results/smoke", copy / "paper_figures")
    folder = folder_of(copy)
    assert not [f for f in consistency.data(folder) if f.level == "mismatch"], "the forgery is consistent"
    assert "tokens/00000.train.bin" in {f.where for f in retokenized(folder) if f.level == "mismatch"}


def test_a_source_that_is_not_here_leaves_the_tokens_on_trust(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    record = examine(folder_of(copy), sample=0, retokenize=True)
    assert [entry for entry in record["unseen"] if "source cannot be read" in entry["what"]]
    assert any("corpus" in text for text in record["on_trust"])


def test_training_again_finds_forged_weights_and_histories(copy: Path) -> None:
    run = "lmu-2k-x0.5-t1"  # of the sweep: never evaluated
    for name in ("weights.safetensors", "history.parquet"):
        falsify(copy / f"results/smoke/training/{run}/{name}")
    renew(copy / "results/smoke", copy / "paper_figures")
    record = examine(folder_of(copy), sample=0, retrain=[run])
    where = {entry["where"] for entry in record["mismatches"]}
    assert {f"training/{run}/weights.safetensors", f"training/{run}/history.parquet"} <= where
