"""The audit on a real finished run: every changed byte is found, and so is a changed number with renewed checksums."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling import manifests
from lmu_scaling.audit.audit import audit, examine
from lmu_scaling.audit.bundle import bundle
from lmu_scaling.audit.results_folder import OUTSIDE_INVENTORY, UNRECORDED, ResultsFolder
from lmu_scaling.errors import AuditError
from lmu_scaling.runtime import sha256_file
from tests.workflow.conftest import ROOT, snakemake

pytestmark = pytest.mark.slow
RUN = "lmu-2k-x1-s1"
PARTS = {"job", "command", "code", "sources", "git", "environment", "started", "ended", "inputs", "outputs"}


@pytest.fixture(scope="module")
def moved(smoke_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run, copied to a place with blanks and umlauts; tests restore what they change."""
    target = tmp_path_factory.mktemp("elsewhere") / "Ergebnisse, weit weg (ä ö ü)"
    for name in ("results", "paper_figures"):
        shutil.copytree(smoke_run / name, target / name)
    return target / "results" / "smoke"


def look(results: Path, sample: int = 0) -> dict[str, Any]:
    return examine(ResultsFolder(results, results.parents[1] / "paper_figures"), sample)


def named(record: dict[str, Any]) -> set[str]:
    return {entry["where"] for entry in record["mismatches"]}


@contextmanager
def restored(*paths: Path) -> Iterator[None]:
    before = {path: (path.read_bytes(), path.stat().st_mtime) for path in paths}
    try:
        yield
    finally:
        for path, (content, when) in before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, (when, when))


def flip(path: Path, position: int, mask: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


# ------------------------------------------------------------------------------------------------------------- sound
def test_a_finished_run_is_sound_wherever_it_is_copied(moved: Path) -> None:
    command = [sys.executable, "-m", "lmu_scaling", "audit", str(moved)]
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: sound" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("*")} == before, "the audit only reads"


def test_only_the_traces_of_the_audit_itself_are_not_covered(moved: Path) -> None:
    assert set(look(moved)["uncovered"]) <= set(UNRECORDED)


def test_what_is_not_covered_without_an_earlier_audit_is_listed(moved: Path) -> None:
    folder = ResultsFolder(moved, moved.parents[1] / "paper_figures")
    folder.record = {}
    kinds = {name.split("/")[0] for name in examine(folder, 0)["uncovered"]}
    assert kinds <= {"logs", "benchmarks", "training", "paper_figures"}
    products = [n for n in examine(folder, 0)["uncovered"] if n.startswith("training/") and "/live/" not in n]
    assert not products, "every product has a manifest; only live logs of training have none"


def test_every_manifest_says_what_ran_where_and_from_what(moved: Path) -> None:
    found = ResultsFolder(moved, moved.parents[1] / "paper_figures").manifests
    assert len(found) > 100
    for name, manifest in found.items():
        assert set(manifest) >= PARTS, name
        assert manifest["outputs"], name
    train = found[f"training/{RUN}/train.manifest.json"]
    assert {"spec", "spec_hash", "seed", "tokens", "flops"} <= set(train)


# ------------------------------------------------------------------------------------------------------------- flips
@pytest.mark.parametrize("seed", range(3))
def test_one_flipped_byte_in_any_file_is_found_and_the_file_is_named(moved: Path, seed: int) -> None:
    """All files but manifests at once (a changed manifest proves nothing about its files), at random positions."""
    random_ = random.Random(seed)
    folder = ResultsFolder(moved, moved.parents[1] / "paper_figures")
    files = {name: path for name, path in folder.files.items() if path.stat().st_size}
    chosen = {n: p for n, p in files.items() if not n.endswith(manifests.SUFFIX) and n not in OUTSIDE_INVENTORY}
    assert len(chosen) > 300
    with restored(*chosen.values()):
        for path in chosen.values():
            size = path.stat().st_size
            flip(path, (0, size - 1, random_.randrange(size))[seed], 1 << random_.randrange(8))
        missed = set(chosen) - named(look(moved))
    assert not missed


def test_one_flipped_byte_in_any_manifest_is_found_and_the_manifest_is_named(moved: Path) -> None:
    random_ = random.Random(0)
    files = ResultsFolder(moved, moved.parents[1] / "paper_figures").files
    chosen = {n: p for n, p in files.items() if n.endswith(manifests.SUFFIX) or n.startswith("audit/audit.")}
    with restored(*chosen.values()):
        for path in chosen.values():
            flip(path, random_.randrange(path.stat().st_size), 1 << random_.randrange(8))
        missed = set(chosen) - named(look(moved)) - {"audit/audit.md"}
        assert not missed
    with restored(moved / "audit/audit.md"):
        flip(moved / "audit/audit.md", 100, 4)
        assert "audit/audit.md" in named(look(moved))


@pytest.mark.parametrize("damage", ["delete", "truncate", "append", "empty", "swap"])
def test_other_damage_is_found_and_named(moved: Path, damage: str) -> None:
    name = f"evaluation/{RUN}/sequences.parquet"
    path, other = moved / name, moved / "evaluation/lmu-2k-x1-s2/sequences.parquet"
    with restored(path, other):
        content = path.read_bytes()
        if damage == "delete":
            path.unlink()
        elif damage == "swap":
            path.write_bytes(other.read_bytes())
        else:
            path.write_bytes({"truncate": content[:-7], "append": content + b"\0", "empty": b""}[damage])
        assert name in named(look(moved))


def test_the_command_fails_and_says_which_file(moved: Path) -> None:
    with restored(moved / "analysis/fits.json"):
        flip(moved / "analysis/fits.json", 200, 1)
        command = [sys.executable, "-m", "lmu_scaling", "audit", str(moved), "--sample", "0"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == AuditError.exit_code
    assert "analysis/fits.json" in done.stderr
    assert "Traceback" not in done.stderr


# --------------------------------------------------------------------------- changed numbers with renewed checksums
@pytest.fixture
def forge(moved: Path) -> Iterator[Callable[[], None]]:
    """Renew every checksum and seal after a change, and delete the earlier audit."""
    everything = [path for path in moved.rglob("*") if path.is_file()]
    figures = [path for path in (moved.parents[1] / "paper_figures").rglob("*") if path.is_file()]

    def renew() -> None:
        shutil.rmtree(moved / "audit")
        for path in [p for p in (*everything, *figures) if p.name.endswith(manifests.SUFFIX) and p.exists()]:
            manifest = json.loads(path.read_text("utf-8"))
            for group in (*manifest["inputs"].values(), *manifest["outputs"].values()):
                for entry in group:
                    place = manifests.find(entry, path)
                    if place is not None and place.is_file():
                        entry |= {"bytes": place.stat().st_size, "sha256": sha256_file(place)}
            manifests.write_sealed(path, manifest)

    with restored(*everything, *figures):
        yield renew


def test_a_forger_who_renews_all_checksums_changes_no_verdict_by_that_alone(moved: Path, forge: Callable) -> None:
    forge()
    assert not named(look(moved, sample=1))


def test_a_better_loss_in_the_table_is_found(moved: Path, forge: Callable) -> None:
    path = moved / "analysis/runs.csv"
    rows = list(csv.DictReader(path.open()))
    rows[0]["test_loss"] = str(float(rows[0]["test_loss"]) - 0.01)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    forge()
    record = look(moved)
    assert any("test_loss" in entry["what"] for entry in record["mismatches"] if entry["where"] == "analysis/runs.csv")
    assert "analysis/fits.json" in named(record), "the law no longer follows from the table"


def test_a_better_summary_than_its_sequences_is_found(moved: Path, forge: Callable) -> None:
    path = moved / f"evaluation/{RUN}/summary.json"
    summary = json.loads(path.read_text())
    summary["splits"]["test"]["loss"] -= 0.01
    path.write_text(json.dumps(summary))
    forge()
    assert f"evaluation/{RUN}/summary.json" in named(look(moved))


def test_weights_that_do_not_give_the_reported_loss_are_found(moved: Path, forge: Callable) -> None:
    """The sample is the smallest run; its weights are replaced by those of another seed."""
    names = sorted(p.parent.name for p in moved.glob("evaluation/*/summary.json"))
    sizes = {name: (moved / f"training/{name}/weights.safetensors").stat().st_size for name in names}
    run = min(names, key=lambda name: (sizes[name], name))
    twin = next(name for name in names if name != run and name[:-1] == run[:-1])
    shutil.copy(moved / f"training/{twin}/weights.safetensors", moved / f"training/{run}/weights.safetensors")
    forge()
    assert f"evaluation/{run}/sequences.parquet" in named(look(moved, sample=1))


def test_a_run_that_does_not_match_its_spec_or_the_configuration_is_found(moved: Path, forge: Callable) -> None:
    path = moved / f"training/{RUN}/spec.json"
    spec = json.loads(path.read_text())
    spec["training"]["steps"] += 1
    path.write_text(json.dumps(spec))
    forge()
    found = named(look(moved))
    assert {f"training/{RUN}/result.json", f"training/{RUN}/spec.json"} <= found


def test_weights_of_another_size_are_found(moved: Path, forge: Callable) -> None:
    shutil.copy(moved / "training/lmu-6k-x1-s1/weights.safetensors", moved / f"training/{RUN}/weights.safetensors")
    forge()
    assert f"training/{RUN}/weights.safetensors" in named(look(moved))


def test_shards_that_do_not_match_the_index_are_found(moved: Path, forge: Callable) -> None:
    flip(moved / "tokens/00000.test.bin", 1000, 1)
    forge()
    assert "tokens/00000.test.bin" in named(look(moved))


def test_a_run_that_is_missing_is_found(moved: Path, forge: Callable) -> None:
    for path in (moved / f"training/{RUN}").glob("*.*"):
        path.unlink()
    forge()
    assert f"training/{RUN}" in named(look(moved))


def test_older_code_and_other_environments_are_notes_that_name_the_modules(moved: Path) -> None:
    path = moved / f"training/{RUN}/train.manifest.json"
    with restored(path):
        manifest = json.loads(path.read_text())
        manifest["sources"]["training.loop"] = "0" * 12
        manifest["environment"]["packages"]["torch"] = "1.0"
        manifests.write_sealed(path, manifest)
        folder = ResultsFolder(moved, None)
        folder.record = {}
        record = examine(folder, 0)
    notes = " ".join(f"{entry['where']} {entry['what']}" for entry in record["notes"])
    assert "training.loop" in notes
    assert "2 environments" in notes
    assert f"training/{RUN}/train" in notes


# ------------------------------------------------------------------------------------------------------------ bundle
def test_a_bundle_is_verified_where_it_is_unpacked_by_the_program_it_brings(moved: Path, tmp_path: Path) -> None:
    packed = tmp_path / "smoke.crate.zip"
    bundle(moved, packed)
    home = tmp_path / "unpacked here"
    with zipfile.ZipFile(packed) as archive:
        assert all(not Path(name).is_absolute() and ".." not in name for name in archive.namelist())
        archive.extractall(home)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "lmu_scaling", "audit", "results/smoke"]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "made by other code" not in done.stdout, "the kernels in C are packed too"
    flip(home / "results/smoke/analysis/claims.json", 50, 1)
    with pytest.raises(AuditError, match=r"claims\.json"):
        audit(home / "results/smoke", sample=0)
    again = tmp_path / "again.zip"
    bundle(moved, again)
    assert again.read_bytes() == packed.read_bytes(), "the same results make the same bundle"


def test_a_bundle_is_a_valid_crate_that_lists_every_file_with_its_checksum(moved: Path, tmp_path: Path) -> None:
    from rocrate.rocrate import ROCrate

    bundle(moved, tmp_path / "light.zip", without_weights=True)
    with zipfile.ZipFile(tmp_path / "light.zip") as archive:
        archive.extractall(tmp_path / "light")
    crate = ROCrate(tmp_path / "light")
    files = {entity.id: entity for entity in crate.data_entities if entity.type != "Dataset"}
    present = {p.relative_to(tmp_path / "light").as_posix() for p in (tmp_path / "light").rglob("*") if p.is_file()}
    assert {name.replace("%20", " ") for name in files} >= present - {"ro-crate-metadata.json"}
    for name in ("paper_figures/loss_vs_N.pdf", "results/smoke/analysis/runs.csv"):
        assert files[name]["sha256"] == sha256_file(tmp_path / "light" / name)
    assert crate.mainEntity.id == "Snakefile"
    assert any(entity.type == "CreateAction" for entity in crate.contextual_entities)
    assert not list((tmp_path / "light").rglob("weights.safetensors"))
    assert not list((tmp_path / "light").rglob("*.bin")), "texts belong to their authors"
    audit(tmp_path / "light" / "results" / "smoke", sample=1)


def test_results_that_do_not_pass_the_audit_are_not_bundled(moved: Path, tmp_path: Path) -> None:
    with restored(moved / "analysis/runs.csv"):
        flip(moved / "analysis/runs.csv", 10, 1)
        with pytest.raises(AuditError):
            bundle(moved, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


# ---------------------------------------------------------------------------------------------------------- workflow
def test_the_workflow_refuses_to_start_on_a_disk_that_is_too_small(tmp_path: Path) -> None:
    """A corpus of four terabytes (a file with a hole) does not fit on this disk; planning it is allowed."""
    corpus = tmp_path / "huge.txt"
    with corpus.open("wb") as file:
        file.truncate(4 * 10**12)
    overlay = tmp_path / "huge.yaml"
    overlay.write_text(json.dumps({"experiment": "huge", "corpus": {"source": "local", "path": str(corpus)}}))
    refused = snakemake(tmp_path, "--", "results/huge/config.json", preset=str(overlay))
    assert refused.returncode != 0
    assert "this experiment needs about" in refused.stdout
    assert "what to do" in refused.stdout
    assert not (tmp_path / "results/huge/config.json").exists()
    planned = snakemake(tmp_path, "--", "plan", preset=str(overlay))
    assert planned.returncode == 0, planned.stdout[-3000:]
    assert "TB at the peak" in planned.stdout


def test_plan_runs_whenever_it_is_asked_for_and_changes_no_verdict(smoke_copy: Path) -> None:
    for _ in range(2):
        done = snakemake(smoke_copy, "--", "plan")
        assert done.returncode == 0, done.stdout[-3000:]
        assert "device hours" in done.stdout
    record = look(smoke_copy / "results" / "smoke")
    assert record["verdict"] == "sound", record["mismatches"] + record["unseen"]
    assert not [name for name in record["uncovered"] if name not in UNRECORDED]
