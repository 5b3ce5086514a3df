"""Manifests: what they name, how they are sealed, what they must never contain."""

from __future__ import annotations

import ast
import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from lmu_scaling import cli, counting, manifests
from lmu_scaling.errors import ResultsError
from lmu_scaling.models import native
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.redaction import HIDDEN, redact, redact_json

CONFIG = yaml.safe_load((REPOSITORY / "config.yaml").read_text("utf-8"))


def write(path: Path, inputs: list[Path], outputs: list[Path], **facts: object) -> dict:
    manifests.write_manifest(
        path,
        job="test",
        inputs={"a": inputs},
        outputs={"b": outputs},
        started=1e9,
        seconds=2.5,
        code="c0de",
        facts=dict(facts),
    )
    return json.loads(path.read_text())


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "e" / "analysis"
    folder.mkdir(parents=True)
    (tmp_path / "paper_figures").mkdir()
    (tmp_path / "paper_figures" / "f.pdf").write_text("figure")
    (folder / "t.csv").write_text("table")
    return folder


def test_products_are_named_relative_to_the_manifest_and_can_be_found_again(results: Path) -> None:
    path = results / "t.manifest.json"
    figure = results.parents[2] / "paper_figures" / "f.pdf"
    manifest = write(path, [figure], [results / "t.csv"])
    assert manifest["outputs"]["b"][0]["path"] == "t.csv"
    assert manifest["inputs"]["a"][0]["path"] == "../../../paper_figures/f.pdf"
    assert manifests.find(manifest["inputs"]["a"][0], path) == figure
    assert manifest["outputs"]["b"][0]["bytes"] == 5
    assert len(manifest["outputs"]["b"][0]["sha256"]) == 64


def test_a_file_of_the_repository_is_named_relative_to_it(results: Path) -> None:
    manifest = write(results / "t.manifest.json", [REPOSITORY / "pyproject.toml"], [])
    assert manifest["inputs"]["a"][0] | {"bytes": 0, "sha256": ""} == {
        "path": "pyproject.toml",
        "in": "repository",
        "bytes": 0,
        "sha256": "",
    }


def test_no_folder_of_the_machine_enters_a_manifest(results: Path, tmp_path: Path) -> None:
    outside = tmp_path / "private-folder" / "corpus.txt"
    outside.parent.mkdir()
    outside.write_text("text")
    manifest = write(results / "t.manifest.json", [outside], [])
    assert manifest["inputs"]["a"][0]["path"] == "corpus.txt"
    assert "private-folder" not in json.dumps(manifest)


def test_a_link_named_results_does_not_break_the_names(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "large-disk")
    folder = tmp_path / "results" / "e"
    folder.mkdir()
    (folder / "x").write_text("x")
    manifest = write(folder / "x.manifest.json", [], [folder / "x"])
    assert manifest["outputs"]["b"][0]["path"] == "x"


def test_a_clock_that_was_set_back_gives_no_negative_duration(results: Path) -> None:
    manifest = write(results / "t.manifest.json", [], [])
    assert manifest["seconds"] == 2.5
    assert manifest["started"] < manifest["ended"]


def test_every_flipped_byte_of_a_manifest_is_noticed(results: Path) -> None:
    path = results / "t.manifest.json"
    write(path, [], [results / "t.csv"], spec={"model": {"d": 8}}, note="größer")
    manifests.read_sealed(path)
    good = path.read_bytes()
    chosen = random.Random(0).sample(range(len(good)), 200)
    for position in chosen:
        for mask in (1, 32, 128):
            path.write_bytes(good[:position] + bytes([good[position] ^ mask]) + good[position + 1 :])
            with pytest.raises(ResultsError):
                manifests.read_sealed(path)
    for other in (good[:-1], good + b"\n", b"", good[: len(good) // 2]):
        path.write_bytes(other)
        with pytest.raises(ResultsError):
            manifests.read_sealed(path)


def test_a_manifest_says_which_environment_and_which_code(results: Path) -> None:
    assert counting
    manifest = write(results / "t.manifest.json", [], [])
    assert {"python", "system", "cpu", "cores", "lock", "packages"} <= set(manifest["environment"])
    assert manifest["environment"]["packages"]["torch"]
    assert manifest["code"] == "c0de"
    assert "counting" in manifest["sources"], "modules that were loaded"
    assert "runtime" not in manifest["sources"], "modules that cannot change a number are left out"


# ---------------------------------------------------------------------------------------------------------- secrets
@pytest.mark.parametrize("name", ["HF_TOKEN", "MY_SECRET", "DB_PASSWORD", "AWS_ACCESS_KEY_ID", "SOME_API_KEY"])
def test_the_value_of_a_secret_variable_is_redacted(name: str, monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.setenv(name, "s3cr3t-value-42")
    manifest = write(
        results / "t.manifest.json", [], [], message="sent s3cr3t-value-42 along", nested=["s3cr3t-value-42"]
    )
    assert "s3cr3t-value-42" not in json.dumps(manifest)
    assert HIDDEN in manifest["message"]
    assert manifest["nested"] == [HIDDEN]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://user:pa55word@host.example/file", "pa55word"),
        ("GET https://host.example/x?access_token=abc123def&n=1", "abc123def"),
        ("Authorization: Bearer abcdefghij.klm", "abcdefghij"),
        ("failed for hf_" + "A1b2C3d4" * 4, "A1b2C3d4"),
        ("failed for ghp_" + "A1b2C3d4" * 4, "A1b2C3d4"),
    ],
)
def test_strings_that_look_like_secrets_are_redacted(text: str, secret: str) -> None:
    assert secret not in redact(text)


def test_ordinary_text_is_left_alone() -> None:
    text = "lmu-55k-x1-s0: 3.1M tokens, results/smoke/training, https://arxiv.org/abs/2110.02402, a@b"
    assert redact(text) == text
    assert redact_json({"a": [1, 2.5, None, True]}) == {"a": [1, 2.5, None, True]}


def test_the_repository_is_shortened_and_a_folder_beside_it_is_not() -> None:
    assert redact(f"in {REPOSITORY}.") == "in <repository>."
    assert redact(f'"{REPOSITORY}/results"') == '"<repository>/results"'
    for other in ("2/results", "-old/results", ".bak/results"):
        assert "<repository>" not in redact(f"{REPOSITORY}{other}")


def test_short_or_path_like_values_of_secret_variables_do_not_damage_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_COUNT", "12")
    monkeypatch.setenv("TOKENS_FOLDER", "/data/tokens")
    assert redact("12 tokens in /data/tokens") == "12 tokens in /data/tokens"


def test_a_job_under_a_clock_that_goes_backwards_has_its_true_duration(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    steps = itertools.count()
    monkeypatch.setattr(time, "time", lambda: now - 60 * next(steps))
    words = ["effective-config", "--config", json.dumps(CONFIG), "--out", str(results / "config.json")]
    assert cli.main([*words, "--manifest", str(results / "config.manifest.json"), "--code", "c0de"]) == 0
    manifest = json.loads((results / "config.manifest.json").read_text())
    assert 0 <= manifest["seconds"] < 60
    assert manifest["started"] <= manifest["ended"]


@pytest.mark.parametrize(
    ("change", "dirty"),
    [
        ({}, False),
        ({"lmu_scaling/models.py": "edited"}, True),
        ({"lmu_scaling/new.py": "untracked"}, True),
        ({"README.md": "edited"}, True),
        ({"notes.txt": "untracked, but no source"}, False),
        ({"results/e/runs.csv": "a product"}, False),
    ],
)
def test_a_source_that_git_does_not_know_makes_the_state_dirty(
    change: dict[str, str], dirty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lmu_scaling/models.py", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("committed")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True)
    for name, text in change.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(manifests, "REPOSITORY", tmp_path)
    manifests.git_state.cache_clear()
    found = manifests.git_state()
    manifests.git_state.cache_clear()
    assert found["dirty"] is dirty and len(found["commit"]) == 40


@pytest.mark.parametrize("compiler", [True, False])
def test_the_kernel_that_ran_is_recorded(compiler: bool) -> None:
    """In a process of its own, because kernels are loaded once."""
    script = (
        "import torch; from lmu_scaling import manifests; from lmu_scaling.models import native\n"
        "torch.set_num_threads(1); native.kernels(); print(manifests.environment())"
    )
    variables = {} if compiler else {"LMU_SCALING_NATIVE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    facts = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    assert facts["threads"] == 1
    expected = "compiled" if compiler and native.kernels() is not None else "torch"
    assert facts["cpu_kernels"] == expected
