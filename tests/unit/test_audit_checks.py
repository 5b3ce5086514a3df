"""The audit's checks on a small folder: two jobs, a log, a figure (tests/workflow/test_faults_audit.py: a real run)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmu_scaling.audit.audit import SOUND, audit, examine
from lmu_scaling.audit.publish import publish
from lmu_scaling.audit.recompute import refit
from lmu_scaling.audit.results_folder import RECORD, ResultsFolder
from lmu_scaling.config import load
from lmu_scaling.errors import AuditError, ConfigError
from lmu_scaling.manifests import write_manifest, write_sealed
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.runtime import write_json


def job(manifest: Path, inputs: list[Path], outputs: list[Path]) -> None:
    write_manifest(
        manifest, job="t", inputs={"i": inputs}, outputs={"o": outputs}, started=0.0, seconds=1.0, code="c", facts={}
    )


def make(home: Path) -> Path:
    """A table made from data, a figure made from the table, a log."""
    results, figures = home / "results" / "e", home / "paper_figures"
    write_json(results / "config.json", {"experiment": "e"})
    for path, text in (
        (results / "tokens/report.csv", "a,b\n1,2\n"),
        (results / "analysis/t.csv", "x\n1\n"),
        (results / "logs/t.log", "fine\n"),
        (figures / "f.svg", "<svg/>"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    job(results / "config.manifest.json", [], [results / "config.json"])
    job(results / "corpus/report.manifest.json", [], [results / "tokens/report.csv"])
    job(results / "analysis/t.manifest.json", [results / "tokens/report.csv"], [results / "analysis/t.csv"])
    job(figures / "f.manifest.json", [results / "analysis/t.csv"], [figures / "f.svg"])
    return results


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return make(tmp_path)


def look(results: Path, figures: bool = True) -> dict[str, Any]:
    folder = ResultsFolder(results, results.parents[1] / "paper_figures" if figures else None)
    record = examine(folder, sample=0)
    # the configuration is not a real one: only the checks of files matter here
    record["mismatches"] = [m for m in record["mismatches"] if m["check"] != "runs"]
    return record


def found(results: Path) -> set[str]:
    return {entry["where"] for entry in look(results)["mismatches"]}


def test_an_untouched_folder_has_no_mismatch_and_lists_files_without_checksum(results: Path) -> None:
    record = look(results)
    assert record["mismatches"] == []
    assert record["uncovered"] == ["logs/t.log"]


def test_a_table_that_changed_is_named_as_output_and_as_input_of_the_figure(results: Path) -> None:
    (results / "analysis/t.csv").write_text("x\n2\n")
    checks = {(m["check"], m["where"]) for m in look(results)["mismatches"]}
    assert {("outputs", "analysis/t.csv"), ("inputs", "analysis/t.csv")} <= checks


def test_a_table_made_anew_makes_the_figure_stale(results: Path) -> None:
    """Checksums agree everywhere but in the figure's manifest: it shows a table that no longer exists."""
    (results / "analysis/t.csv").write_text("x\n2\n")
    job(results / "analysis/t.manifest.json", [results / "tokens/report.csv"], [results / "analysis/t.csv"])
    mismatches = look(results)["mismatches"]
    assert [(m["check"], m["where"]) for m in mismatches] == [("inputs", "analysis/t.csv")]
    assert "paper_figures/f" in mismatches[0]["what"]


def test_a_missing_product_is_named(results: Path) -> None:
    (results / "analysis/t.csv").unlink()
    assert "analysis/t.csv" in found(results)


def test_figures_that_were_not_copied_along_are_no_mismatch(results: Path) -> None:
    shutil.rmtree(results.parents[1] / "paper_figures")
    assert look(results, figures=False)["mismatches"] == []


def test_figures_may_lie_apart_from_results(results: Path, tmp_path: Path) -> None:
    """So far apart that the relative paths in their manifests lead nowhere."""
    away = tmp_path / "another" / "disk" / "elsewhere"
    away.parent.mkdir(parents=True)
    shutil.move(results.parents[1] / "paper_figures", away)
    assert not [m for m in examine(ResultsFolder(results, away), 0)["mismatches"] if m["check"] != "runs"]
    (results / "analysis/t.csv").write_text("x\n3\n")
    where = {m["what"] for m in examine(ResultsFolder(results, away), 0)["mismatches"]}
    assert any("paper_figures/f" in what for what in where)


def test_the_inventory_of_an_earlier_audit_covers_logs(results: Path) -> None:
    record = look(results)
    write_sealed(results / RECORD, record)
    assert look(results)["uncovered"] == []
    (results / "logs/t.log").write_text("fine.\n")
    assert found(results) == {"logs/t.log"}


def test_a_new_file_since_the_last_audit_is_a_note(results: Path) -> None:
    write_sealed(results / RECORD, look(results))
    (results / "stray.txt").write_text("?")
    record = look(results)
    assert record["mismatches"] == []
    assert "stray.txt" in {note["where"] for note in record["notes"]}


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_flipped_bit_in_any_product_or_manifest_is_named(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    results = make(tmp_path_factory.mktemp("flip"))
    folder = ResultsFolder(results, results.parents[1] / "paper_figures")
    files = {name: path for name, path in folder.files.items() if name != "logs/t.log"}
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name].read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    files[name].write_bytes(content)
    record = examine(ResultsFolder(results, results.parents[1] / "paper_figures"), 0)
    assert name in {m["where"] for m in record["mismatches"]}


def test_the_job_fails_on_a_mismatch_and_writes_nothing(results: Path, tmp_path: Path) -> None:
    (results / "analysis/t.csv").write_text("x\n2\n")
    with pytest.raises(AuditError) as failed:
        audit(results, out_json=tmp_path / "audit.json", out_md=tmp_path / "audit.md", sample=0)
    assert failed.value.exit_code == 6
    assert not (tmp_path / "audit.json").exists()


def test_a_folder_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="no such folder"):
        audit(tmp_path / "nothing")


def test_refitting_recovers_a_power_law() -> None:
    rows = [{"n_exact": n, "test_loss": (1e13 / n) ** 0.07} for n in (5e4, 1e5, 1e6) for _ in range(2)]
    assert refit(rows) == pytest.approx(0.07, rel=1e-12)


def test_hostile_paths_in_a_manifest_reach_no_file_outside(results: Path, tmp_path: Path) -> None:
    """A manifest may name any path; the audit reads only files in the given folders."""
    secret = tmp_path / "outside.txt"
    secret.write_text("private")
    path = results / "analysis/t.manifest.json"
    manifest = json.loads(path.read_text())
    manifest["inputs"]["i"][0]["path"] = "../../../outside.txt"
    write_sealed(path, manifest)
    assert "outside.txt" not in json.dumps(look(results))


def test_a_link_that_leads_out_is_named_and_not_followed(results: Path, tmp_path: Path) -> None:
    """Else a bundle of a stranger's folder would publish whatever the link points at."""
    secret = tmp_path / "outside.txt"
    secret.write_text("private")
    (results / "logs/key.log").symlink_to(secret)
    (results / "logs/same.log").symlink_to(results / "logs/t.log")
    record = look(results)
    assert [(m["check"], m["where"]) for m in record["mismatches"]] == [("links", "logs/key.log")]
    assert "logs/key.log" not in record["inventory"]
    assert "logs/same.log" in record["inventory"], "a link within the folder is fine"
    with pytest.raises(AuditError) as caught:
        audit(results)
    assert caught.value.remedy == "remove the link, or put the file itself in its place"


def test_a_manifest_cannot_make_the_audit_look_at_files_beside_the_repository(results: Path) -> None:
    """An input "of the repository" whose path leads out of it: the audit does not even tell whether the file exists."""
    path = results / "analysis/t.manifest.json"
    manifest = json.loads(path.read_text())
    outside = "../" * len(REPOSITORY.parts) + "etc/hostname"
    assert (REPOSITORY / outside).is_file(), "the test needs a file that is there"
    for name in (outside, "pyproject.toml"):
        manifest["inputs"]["i"][0] |= {"path": name, "in": "repository"}
        write_sealed(path, manifest)
        noted = {note["where"] for note in look(results)["notes"]}
        assert (name in noted) == (name == "pyproject.toml")


def test_a_check_that_breaks_off_is_a_mismatch(results: Path) -> None:
    """An index of tokens that is JSON, but not the JSON that the check expects: the other checks go on."""
    write_json(results / "tokens/index.json", {"shards": []})
    (results / "analysis/t.csv").write_text("x\n2\n")
    found = {(m["check"], m["where"]): m["what"] for m in look(results)["mismatches"]}
    assert "KeyError" in found["data", "results"]
    assert ("outputs", "analysis/t.csv") in found


# ------------------------------------------------------------------------------------------------------- what is seen
def test_a_folder_without_manifests_is_nothing_to_audit(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("no results")
    with pytest.raises(AuditError, match="nothing to audit"):
        audit(tmp_path)


def test_a_folder_that_holds_experiments_is_not_taken_for_one(tmp_path: Path) -> None:
    results = make(tmp_path)
    write_json(results / "config.manifest.json", {})
    with pytest.raises(AuditError, match="but holds 1: results/e") as caught:
        ResultsFolder(tmp_path)
    assert caught.value.remedy == f"name one of them: {results}"
    assert ResultsFolder(results).files


def test_what_cannot_be_read_is_named(results: Path) -> None:
    import os
    import socket

    os.mkfifo(results / "pipe")
    (results / "nowhere").symlink_to(results / "missing")
    (results / "linked").symlink_to(results / "analysis")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(results / "socket"))
        unseen = {entry["where"]: entry["what"] for entry in look(results)["unseen"]}
    kinds = {"pipe": "pipe", "nowhere": "link to nothing", "linked": "link to a folder", "socket": "socket"}
    assert {name: word in unseen.get(name, "") for name, word in kinds.items()} == dict.fromkeys(kinds, True)


def test_a_part_of_an_experiment_is_partly_checked(results: Path) -> None:
    record = look(results)
    assert record["verdict"] != SOUND
    write_json(results / "config.json", load(REPOSITORY / "config.yaml").model_dump(mode="json"))
    job(results / "config.manifest.json", [], [results / "config.json"])
    unseen = {entry["where"] for entry in look(results)["unseen"]}
    assert {"evaluate", "claims", "figure", "paper_figures/loss_vs_N"} <= unseen


def test_no_earlier_audit_is_said_and_not_called_an_unchanged_inventory(results: Path) -> None:
    check = next(check for check in look(results)["checks"] if check["name"] == "inventory")
    assert check["notes"] == 1


def test_a_job_that_ran_since_the_audit_may_renew_its_log(results: Path) -> None:
    """A figure is rebuilt after the audit: its timing and its log are new, and that is no mismatch."""
    figures = results.parents[1] / "paper_figures"
    (results / "logs/t").mkdir()
    log, other = results / "logs/t/f.log", results / "logs/t.log"
    log.write_text("first\n")
    record = look(results)
    write_sealed(results / RECORD, record)
    log.write_text("second\n")
    assert found(results) == {"logs/t/f.log"}
    (figures / "f.svg").write_text("<svg>2</svg>")
    job(figures / "f.manifest.json", [results / "analysis/t.csv"], [figures / "f.svg"])
    assert found(results) == set()
    log.unlink()
    assert found(results) == {"logs/t/f.log"}
    assert other.is_file()


def test_a_run_that_does_not_exist_cannot_be_trained_again(results: Path) -> None:
    write_json(results / "training/lmu-2k-x1-s1/spec.json", {})
    with pytest.raises(AuditError, match="no run 'lmu-2k-x1-s9'") as caught:
        audit(results, retrain=["lmu-2k-x1-s9"])
    assert "lmu-2k-x1-s1" in str(caught.value)


def test_a_negative_sample_is_refused(results: Path) -> None:
    with pytest.raises(ConfigError, match="sample cannot be -1"):
        audit(results, sample=-1)


def test_nothing_is_published_from_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(AuditError):
        publish(tmp_path / "nowhere", to=tmp_path / "published")
    assert not (tmp_path / "published").exists()
