"""Copies stay done: content decides what is computed, not the dates of files, nor where they are."""

from __future__ import annotations

import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lmu_scaling.audit.bundle import bundle
from tests.workflow.conftest import dry, edit_preset, snakemake

pytestmark = pytest.mark.slow


def copied(source: Path, target: Path, with_memory: bool = True) -> Path:
    """`cp -r`, or `rsync` without times: files with the date of the copy, in an order of its own."""
    files = [path for path in source.rglob("*") if path.is_file() or path.is_symlink()]
    random.Random(1).shuffle(files)
    for path in files:
        inside = path.relative_to(source)
        if with_memory or inside.parts[0] != ".snakemake":
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inside, follow_symlinks=False)
    return target


def touched(source: Path, target: Path) -> Path:
    """Dates of the last ten years, at random."""
    copied(source, target)
    rng = random.Random(2)
    for path in target.rglob("*"):
        when = 1.4e9 + rng.random() * 3e8
        os.utime(path, (when, when), follow_symlinks=False)
    return target


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(copied, id="cp -r"),
        pytest.param(lambda source, target: copied(source, target, with_memory=False), id="without .snakemake"),
        pytest.param(touched, id="touch of everything"),
    ],
)
def test_a_copy_of_a_finished_run_has_nothing_to_do(smoke_run: Path, tmp_path: Path, copy) -> None:
    assert dry(copy(smoke_run, tmp_path / "copy")) == {}


def test_a_copy_without_snakemakes_memory_still_notices_a_change(
    smoke_run: Path, tmp_path: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy()
    edit_preset(repository, lambda preset: preset["training"].update(steps=60))
    jobs = dry(copied(smoke_run, tmp_path / "copy", with_memory=False), root=repository)
    assert jobs["train"] == 22 + 25 and not {"fetch", "encode", "index"} & set(jobs)


@pytest.fixture(scope="module")
def unpacked(smoke_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bundle")
    bundle(smoke_run / "results/smoke", home / "x.zip")
    with zipfile.ZipFile(home / "x.zip") as archive:
        archive.extractall(home / "unpacked here")
    return home / "unpacked here"


def test_an_unpacked_bundle_has_nothing_to_do(unpacked: Path) -> None:
    """Shards are not in it: they are not asked for until something needs them."""
    assert dry(unpacked, root=unpacked) == {}


def test_an_unpacked_bundle_says_how_to_make_the_shards_that_it_leaves_out(unpacked: Path) -> None:
    weights = "results/smoke/training/lmu-2k-x1-s1/weights.safetensors"
    (unpacked / weights).unlink()
    done = snakemake(unpacked, "--", weights, root=unpacked)
    assert done.returncode != 0 and "--forcerun index" in done.stdout
    jobs = dry(unpacked, "--forcerun", "index", root=unpacked)
    assert {"fetch", "encode", "shard", "index", "train"} <= set(jobs)


def test_the_memory_that_travels_names_no_machine(smoke_run: Path) -> None:
    text = (smoke_run / "results/smoke/snakemake.json").read_text()
    assert str(smoke_run) not in text and str(Path(__file__).parents[2]) not in text
