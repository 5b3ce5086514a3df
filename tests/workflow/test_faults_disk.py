"""Disks that are full or read-only, for real: a small tmpfs, or a read-only mount, in a namespace of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmu_scaling.errors import DiskFull
from lmu_scaling.runtime import read_json
from tests.needs import require
from tests.workflow.conftest import ROOT

pytestmark = pytest.mark.slow
RUN = "lmu-2k-x1-s1"


def in_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script that may mount file systems nobody else sees; they vanish with it."""
    command = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else []), "sh", "-euc", script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module", autouse=True)
def _namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("mount")
    mounts = shutil.which("unshare") and not in_namespace(f"mount -t tmpfs tmpfs {shlex.quote(str(place))}").returncode
    require(mounts, "this machine allows no mount namespaces")


def on_small_disk(folder: Path, kilobytes: int, *command: object) -> subprocess.CompletedProcess[str]:
    """Run a job while `folder` is a disk of that size; what it holds afterwards is printed to stdout."""
    folder.mkdir(parents=True, exist_ok=True)
    place, words = shlex.quote(str(folder)), shlex.join([sys.executable, "-m", "lmu_scaling", *map(str, command)])
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {place}"
    return in_namespace(f"{mount}; set +e; {words} >&2; echo code $?; find {place} -mindepth 1")


def assert_explained(done: subprocess.CompletedProcess[str], *never: str) -> None:
    assert f"code {DiskFull.exit_code}" in done.stdout, done.stdout + done.stderr
    assert "no space left" in done.stderr
    assert "what to do" in done.stderr
    assert "Traceback" not in done.stderr
    for name in (*never, ".partial"):
        assert name not in done.stdout, "nothing half-written keeps a final name"


def test_disk_full_during_a_shard(smoke_run: Path, tmp_path: Path) -> None:
    config = read_json(smoke_run / "results/smoke/config.json")
    done = on_small_disk(
        tmp_path / "parts", 400, "encode", "--filters", json.dumps(config["corpus"]["filters"]), "--parts", 2,
        "--on-bad-document", "skip", "--tokens", json.dumps(config["tokens"]),
        "--source", smoke_run / "results/smoke/corpus/source.json",
        "--part", 0, "--out", tmp_path / "parts",
    )  # fmt: skip
    assert_explained(done, ".tokens.bin")


def test_disk_full_during_a_table(smoke_run: Path, tmp_path: Path) -> None:
    results, out = smoke_run / "results/smoke", tmp_path / "analysis"
    runs = sorted(path.parent.name for path in results.glob("evaluation/*/summary.json"))
    done = on_small_disk(
        out,
        20,
        "table",
        "--results",
        results,
        "--runs",
        *runs,
        "--out",
        out / "runs.csv",
        "--sensitivity",
        out / "s.csv",
        "--history",
        out / "h.parquet",
    )
    assert_explained(done, "h.parquet")


def test_disk_full_during_a_figure(smoke_run: Path, tmp_path: Path) -> None:
    results, out = smoke_run / "results/smoke", tmp_path / "paper_figures"
    command = read_json(smoke_run / "paper_figures/training_curves.manifest.json")["command"]
    look = command[command.index("--look") + 1]
    done = on_small_disk(
        out, 8, "figure", "--name", "training_curves", "--results", results, "--look", look,
        "--pdf", out / "f.pdf", "--svg", out / "f.svg", "--png", out / "f.png", "--caption", out / "f.rst",
    )  # fmt: skip
    assert_explained(done, "f.png")


def train(smoke_run: Path, out: Path) -> list[object]:
    results = smoke_run / "results/smoke"
    return [
        "train", "--spec", results / f"training/{RUN}/spec.json", "--tokens", results / "tokens/index.json",
        "--live", out / "live", "--weights", out / "weights.safetensors", "--history", out / "history.parquet",
        "--result", out / "result.json", "--checkpoint-seconds", 0,
    ]  # fmt: skip


def test_disk_full_during_a_checkpoint_and_the_run_goes_on_when_there_is_space(smoke_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = on_small_disk(out / "live", 220, *train(smoke_run, out))
    assert_explained(done)
    assert not (out / "weights.safetensors").exists()
    words = [sys.executable, "-m", "lmu_scaling", *map(str, train(smoke_run, out))]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    same = (smoke_run / f"results/smoke/training/{RUN}/weights.safetensors").read_bytes()
    assert (out / "weights.safetensors").read_bytes() == same


def test_read_only_results_are_explained_and_can_be_audited(smoke_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "read only"
    place.mkdir()
    (place / "results").mkdir()
    (place / "paper_figures").mkdir()
    binds = [
        f"mount --bind {shlex.quote(str(smoke_run / name))} {shlex.quote(str(place / name))}"
        f" && mount -o remount,bind,ro {shlex.quote(str(place / name))}"
        for name in ("results", "paper_figures")
    ]
    python = f"cd {shlex.quote(str(place))}; {shlex.quote(sys.executable)} -m lmu_scaling"
    settings = shlex.quote((smoke_run / "results/smoke/config.json").read_text())
    script = "; ".join(
        [*binds, "set +e",
         f"({python} effective-config --config {settings} --out results/smoke/config.json); echo code $?",
         f"({python} audit results/smoke --sample 0); echo code $?"]
    )  # fmt: skip
    done = in_namespace(script)
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[0] == "code 2"
    assert "verdict: sound" in done.stdout
    assert done.stdout.splitlines()[-1] == "code 0"


def test_a_clock_that_goes_backwards_changes_neither_weights_nor_durations(smoke_run: Path, tmp_path: Path) -> None:
    """Every look at the clock of a training job is a minute earlier than the one before."""
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, time\n_now, _steps = time.time(), itertools.count()\n"
        "time.time = lambda: _now - 60 * next(_steps)\n"
    )
    out = tmp_path / "run"
    words = [sys.executable, "-m", "lmu_scaling", *map(str, train(smoke_run, out))]
    words += ["--manifest", str(out / "m.manifest.json")]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    subprocess.run(words, cwd=ROOT, env=environment, check=True, capture_output=True)
    manifest, result = read_json(out / "m.manifest.json"), read_json(out / "result.json")
    assert 0 < manifest["seconds"] < 600
    assert manifest["started"] <= manifest["ended"]
    assert 0 < result["machine"]["seconds"] < 600
    same = (smoke_run / f"results/smoke/training/{RUN}/weights.safetensors").read_bytes()
    assert (out / "weights.safetensors").read_bytes() == same
