"""Damage heals with the plain command: what is lost or changed in a finished experiment is made again."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from lmu_scaling import cli
from lmu_scaling.audit.results_folder import ResultsFolder
from tests.proofs.kill import differences
from tests.workflow.conftest import dry, snakemake

pytestmark = pytest.mark.slow
RUN = "lmu-2k-x1-s1"


def products(directory: Path) -> dict[tuple[str, str], str]:
    """One file of every kind, by job and role of the output; another run or figure for each role, where there are."""
    results, figures = directory / "results/smoke", directory / "paper_figures"
    folder = ResultsFolder(results, figures)
    found: dict[tuple[str, str], str] = {}
    for name, manifest in sorted(folder.manifests.items(), key=lambda item: item[0][::-1]):
        names = {"manifest": name}
        for role, listed in manifest["outputs"].items():
            for entry in listed:
                file = folder.name_of(entry, name)
                several = re.sub(r"\d+\.", "", Path(file).name)  # files that a job writes into a folder
                names[several if role == "wrote" else role] = file
        for role, file in names.items():
            if file in folder.files and file not in found.values():
                path = file if file.startswith("paper_figures/") else f"results/smoke/{file}"
                found.setdefault((manifest["job"], role), path)
    return found


def lost_again(directory: Path, *arguments: str) -> set[str]:
    """Files that a dry run would make because they are missing."""
    done = snakemake(directory, "--dry-run", *arguments)
    assert done.returncode == 0, done.stdout[-3000:]
    reasons = re.findall(r"Missing output files: ([^;\n]*)", done.stdout)
    return {name.strip() for reason in reasons for name in reason.split(",")}


def test_every_kind_of_file_is_made_again_when_it_is_lost(smoke_copy: Path) -> None:
    chosen = products(smoke_copy)
    assert len(chosen) >= 45, "all roles of all jobs"
    for path in chosen.values():
        (smoke_copy / path).unlink()
    assert set(chosen.values()) <= lost_again(smoke_copy)


@pytest.mark.parametrize(
    "folder",
    [f"results/smoke/training/{RUN}", f"results/smoke/evaluation/{RUN}", "paper_figures", "results/smoke/audit"],
)
def test_a_folder_that_is_lost_is_made_again(smoke_copy: Path, folder: str) -> None:
    files = {str(p.relative_to(smoke_copy)) for p in (smoke_copy / folder).rglob("*") if p.is_file()}
    shutil.rmtree(smoke_copy / folder)
    assert files - lost_again(smoke_copy) <= {f for f in files if "/live/" in f or "README" in f}


def test_lost_and_damaged_files_are_the_same_again_and_nothing_is_trained_twice(
    smoke_run: Path, smoke_copy: Path
) -> None:
    """A shard, a table, a manifest and a verdict are lost, a table is cut off, weights have a flipped bit."""
    results = smoke_copy / "results/smoke"
    for name in ("tokens/00001.train.bin", "analysis/claims.md", "analysis/fits.manifest.json", "config.json"):
        (results / name).unlink()
    shutil.rmtree(results / f"training/{RUN}")
    table, weights = results / "analysis/runs.csv", results / "training/lstm-2k-x1-s1/weights.safetensors"
    table.write_bytes(table.read_bytes()[:-100])
    flip(weights, 1000)
    damaged = weights.read_bytes()
    before = {p: p.stat().st_ino for p in results.glob("training/*/weights.safetensors")}
    done = snakemake(smoke_copy)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "training/lstm-2k-x1-s1/weights.safetensors: its content was changed" in done.stdout
    assert differences(smoke_run, smoke_copy) == []
    kept = smoke_copy / ".snakemake/damaged/results/smoke/training/lstm-2k-x1-s1/weights.safetensors"
    assert kept.read_bytes() == damaged, "nothing that was found is thrown away"
    after = {p: p.stat().st_ino for p in results.glob("training/*/weights.safetensors")}
    trained = {p.parent.name for p, number in after.items() if before.get(p) != number}
    assert trained == {RUN, "lstm-2k-x1-s1"}, "the tokens are the same again: the other runs still hold"
    assert dry(smoke_copy) == {}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_bit_that_flips_in_silence_is_found_before_the_weights_are_used(
    smoke_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The date is the old one, so that nothing can be seen without reading the file."""
    monkeypatch.chdir(smoke_copy)
    weights = Path(f"results/smoke/training/{RUN}/weights.safetensors")
    stat = weights.stat()
    flip(weights, 2000)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    words = ["evaluate", "--spec", str(weights.with_name("spec.json")), "--weights", str(weights)]
    words += ["--tokens", "results/smoke/tokens/index.json", "--max-sequences", "4"]
    words += [w for role in ("summary", "per-token", "sequences") for w in (f"--{role}", f"out/{role}")]
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert f"--forcerun {weights}" in said and "Traceback" not in said
    assert not Path("out").exists()
    jobs = dry(smoke_copy, "--forcerun", str(weights))
    assert jobs.runs["train"] == jobs.runs["evaluate"] == {RUN}


def test_a_damaged_file_is_named_with_the_command_when_something_else_is_asked_for(smoke_copy: Path) -> None:
    table = smoke_copy / "results/smoke/analysis/runs.csv"
    table.write_text("run\n")
    done = snakemake(smoke_copy, "--dry-run", "--", "paper_figures/architecture.pdf")
    assert "analysis/runs.csv: 4 bytes instead of" in done.stdout
    assert "by `snakemake --cores all`" in done.stdout
    assert {"table", "fit", "claims"} <= set(dry(smoke_copy))


def test_an_audit_that_fails_leaves_its_report_and_the_earlier_inventory(smoke_copy: Path) -> None:
    """A log is changed: no job makes it again, so the audit that follows a new figure must fail."""
    results = smoke_copy / "results/smoke"
    before = (results / "audit/audit.json").read_bytes()
    (results / "logs/fetch.log").write_text("another log\n")
    (smoke_copy / "paper_figures/architecture.pdf").unlink()
    done = snakemake(smoke_copy)
    assert done.returncode != 0
    assert "Run the same command to go on" in done.stdout
    assert (results / "audit/audit.json").read_bytes() == before
    assert "logs/fetch.log" in (results / "audit/failed.md").read_text()
