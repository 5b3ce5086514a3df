"""Content decides: a job that still holds is not repeated, a damaged input is not used, a copy is finished."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from lmu_scaling import cli, records
from lmu_scaling.errors import ResultsError
from lmu_scaling.healing import damaged, describe, keep, mark, omitted
from lmu_scaling.manifests import write_sealed
from lmu_scaling.reuse import is_current, settings, verified
from lmu_scaling.runtime import canonical_json, read_json
from tests import toy


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of one finished job: `specify`, whose input is the outcome of a sweep."""
    monkeypatch.chdir(tmp_path)
    Path("results/x").mkdir(parents=True)
    Path("results/x/tuning.json").write_text(json.dumps({"learning_rate": 0.5, "embedding_scale": 2.0}))
    assert specify() == 0
    return tmp_path


def specify(code: str = "c0de", steps: int = 12, *more: str) -> int:
    template = toy.spec("lmu", steps) | {}
    template["training"]["learning_rate"] = None
    words = ["specify", "--template", canonical_json(template), "--out", "results/x/spec.json"]
    words += ["--tuning", "results/x/tuning.json", "--manifest", "results/x/spec.manifest.json", "--code", code, *more]
    return cli.main(words)


def moment(path: str = "results/x/spec.json") -> int:
    return Path(path).stat().st_mtime_ns


# ------------------------------------------------------------------------------------------------- nothing to repeat
def test_a_job_whose_manifest_holds_is_not_repeated(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = moment()
    assert specify() == 0
    assert "nothing to do" in capsys.readouterr().out
    assert moment() == before
    assert "confirmed" in read_json("results/x/spec.manifest.json")
    assert specify() == 0, "and still holds"
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["code", "settings", "input", "output", "lost output", "manifest"])
def test_a_job_is_repeated_after_a_change_of_anything_it_depends_on(made: Path, change: str) -> None:
    whole, before = Path("results/x/spec.json").read_bytes(), moment("results/x/spec.manifest.json")
    if change == "input":
        Path("results/x/tuning.json").write_text(json.dumps({"learning_rate": 0.25, "embedding_scale": 2.0}))
    elif change == "output":
        Path("results/x/spec.json").write_bytes(whole.replace(b"0.5", b"0.6"))
    elif change == "lost output":
        Path("results/x/spec.json").unlink()
    elif change == "manifest":
        Path("results/x/spec.manifest.json").write_text("{}")
    assert specify("0ther" if change == "code" else "c0de", 13 if change == "settings" else 12) == 0
    assert moment("results/x/spec.manifest.json") != before
    assert (Path("results/x/spec.json").read_bytes() == whole) == (change not in ("settings", "input"))


def test_how_to_compute_is_no_reason_to_repeat() -> None:
    words = ["train", "--spec", "a", "--threads", "1", "--device", "cpu", "--micro-batch", "4", "--keep-going", "False"]
    other = ["train", "--spec", "a", "--threads", "8", "--device", "cuda", "--keep-going", "False", "--code", "x"]
    assert settings(words) == settings(other)
    assert settings(words) != settings([*other[:2], "b", *other[3:]])


def test_a_manifest_without_outputs_vouches_for_nothing(made: Path) -> None:
    path = Path("results/x/spec.manifest.json")
    content = read_json(path)
    words = content["command"][3:]
    assert is_current(path, words, "c0de")
    write_sealed(path, {**content, "outputs": {}})
    assert not is_current(path, words, "c0de")


# --------------------------------------------------------------------------------------------------- damaged inputs
def test_an_input_that_is_not_as_its_job_wrote_it_is_not_used(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("results/x/spec.json")
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ResultsError, match="not as its job wrote it") as caught:
        verified([path])
    assert "--forcerun results/x/spec.json" in caught.value.remedy
    template = canonical_json(toy.spec("lmu"))
    assert cli.main(["specify", "--template", template, "--out", "o", "--tuning", "results/x/spec.json"]) == 2
    assert "not as its job wrote it" in capsys.readouterr().err and not Path("o").exists()


def test_inputs_without_a_manifest_are_the_users_own(made: Path) -> None:
    assert list(verified([Path("results/x/tuning.json"), Path("results/x/nothing")])) == ["results/x/tuning.json"]


# ----------------------------------------------------------------------------------------------- damage at the start
MANIFEST = "results/x/spec.manifest.json"


def test_a_file_of_another_size_or_newer_with_other_content_is_damaged(made: Path) -> None:
    path = Path("results/x/spec.json")
    whole = path.read_bytes()
    assert damaged([MANIFEST, "results/x/other.manifest.json"]) == []
    path.write_bytes(whole[:-5])
    assert [(d.file, d.manifest) for d in damaged([MANIFEST])] == [("results/x/spec.json", MANIFEST)]
    path.write_bytes(whole.replace(b"0.5", b"0.6"))
    assert "changed" in damaged([MANIFEST])[0].what
    path.write_bytes(whole)
    assert damaged([MANIFEST]) == [], "newer, but the same"
    path.unlink()
    assert damaged([MANIFEST]) == [], "a file that is lost is asked for by rule all"


def test_a_damaged_manifest_is_damage(made: Path) -> None:
    Path(MANIFEST).write_text(Path(MANIFEST).read_text().replace("specify", "spezify"))
    assert [d.file for d in damaged([MANIFEST])] == [MANIFEST]


def test_damaged_files_are_kept_before_they_are_made_again(made: Path) -> None:
    Path("results/x/spec.json").write_text("my notes")
    found = damaged([MANIFEST])
    assert "results/x/spec.json: " in describe(found)
    assert ".snakemake/damaged" in keep(found)
    assert Path(".snakemake/damaged/results/x/spec.json").read_text() == "my notes"


def test_snakemake_is_told_which_jobs_to_repeat_until_the_file_is_restored(made: Path) -> None:
    path, place = (
        Path("results/x/spec.json"),
        Path(".snakemake/incomplete", urlsafe_b64encode(MANIFEST.encode()).decode()),
    )
    whole = path.read_bytes()
    path.write_text("cut")
    mark([MANIFEST], damaged([MANIFEST]))
    assert place.is_file()
    path.write_bytes(whole)
    mark([MANIFEST], damaged([MANIFEST]))
    assert not place.exists()
    place.write_text('{"external_jobid": null}')  # of Snakemake itself: the job was killed
    mark([MANIFEST], [])
    assert place.is_file()


def test_files_that_a_bundle_leaves_out_are_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    assert omitted(str(path), "results/x") == set()
    write_sealed(path, {"left_out": {"tokens/00000.train.bin": "0" * 64}})
    assert omitted(str(path), "results/x") == {"results/x/tokens/00000.train.bin"}
    path.write_text("{}")
    assert omitted(str(path), "results/x") == set()


# ----------------------------------------------------------------------------------------------------------- records
def place(output: str) -> Path:
    return Path(".snakemake/metadata") / urlsafe_b64encode(output.encode()).decode()


def test_snakemakes_records_travel_with_the_results(made: Path) -> None:
    outputs = ["results/x/spec.json", MANIFEST]
    record = {"record_format_version": 6, "rule": "specify", "params": ["1"], "shellcmd": "secret", "incomplete": False}
    place(MANIFEST).parent.mkdir(parents=True)
    place(MANIFEST).write_text(json.dumps(record))
    kept = Path("results/x/snakemake.json")
    records.save(kept, [(MANIFEST, outputs), ("results/x/none.manifest.json", [])])
    assert "secret" not in kept.read_text()
    place(MANIFEST).unlink()
    assert records.restore(kept) == 2
    assert {json.loads(place(output).read_text())["rule"] for output in outputs} == {"specify"}
    assert records.restore(kept) == 0, "what is there is left alone"


def test_a_record_of_another_manifest_is_not_given_back(made: Path) -> None:
    place(MANIFEST).parent.mkdir(parents=True)
    place(MANIFEST).write_text(json.dumps({"rule": "specify"}))
    kept = Path("results/x/snakemake.json")
    records.save(kept, [(MANIFEST, ["results/x/spec.json", MANIFEST])])
    place(MANIFEST).unlink()
    assert specify("0ther") == 0
    assert records.restore(kept) == 0
    kept.write_text("{")
    assert records.restore(kept) == 0
