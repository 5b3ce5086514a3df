"""Trackers: what a sink is told, in the real tool, and that a failing one stops nothing.

The test with the real trackio is in tests/install: it cannot be installed beside matplotlib.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling.errors import ConfigError, MissingPackage
from lmu_scaling.runtime import write_json
from lmu_scaling.training import trackers
from lmu_scaling.training.trackers import Trackers
from tests import toy
from tests.needs import needs

ROWS = [
    {"step": 1, "tokens": 96, "loss": 5.5, "validation_loss": None},
    {"step": 2, "tokens": 192, "loss": 5.25, "validation_loss": 5.0},
]


def has(package: str) -> Any:
    return needs(importlib.util.find_spec(package), f"needs {package} (pip install '.[tracking]')")


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown tracker 'wandbb'"):
        Trackers("tensorboard,wandbb", tmp_path, "run", {})


def test_none_means_none(tmp_path: Path) -> None:
    assert not Trackers("none", tmp_path, "run", {}).sinks
    assert not Trackers("", tmp_path, "run", {}).sinks


def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(MissingPackage, match=r"\[tracking\]"):
        Trackers("tensorboard", tmp_path, "run", {})


@pytest.mark.parametrize("moment", ["start", "log", "close"])
def test_a_failing_tracker_is_left_out_and_training_goes_on(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        def __init__(self, *_: Any) -> None:
            self.fail("start")

        def fail(self, now: str) -> None:
            if now == moment:
                raise ConnectionError("the service is away")

        def log(self, step: int, values: Any) -> None:
            self.fail("log")

        def close(self) -> None:
            self.fail("close")

    monkeypatch.setitem(trackers.SINKS, "wandb", Failing)
    sinks = Trackers("wandb", tmp_path, "run", {})
    for row in ROWS:
        sinks.log(row)
    sinks.close()
    said = capsys.readouterr().err
    assert said.count("training goes on") == 1 and "the service is away" in said


@has("tensorboard")
def test_tensorboard_holds_every_number(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sinks = Trackers("tensorboard", tmp_path, "run", {})
    for row in ROWS:
        sinks.log(row)
    sinks.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 5.5), (2, 5.25)]
    assert [(event.step, event.value) for event in events.Scalars("validation_loss")] == [(2, 5.0)]


@has("wandb")
def test_wandb_records_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    sinks = Trackers("wandb", tmp_path, "lmu-2k-x1-s1", {"seed": 1})
    run = sinks.sinks["wandb"].run  # type: ignore[attr-defined]
    assert run.settings.mode == "offline"
    for row in ROWS:
        sinks.log(row)
    sinks.close()
    (recorded,) = tmp_path.rglob("run-*.wandb")
    data = recorded.read_bytes()  # values are kept as JSON text
    assert all(text in data for text in (b"validation_loss", b"5.25", b"lmu-2k-x1-s1"))


@has("tensorboard")
def test_a_training_job_feeds_the_tracker_that_was_chosen(tmp_path: Path) -> None:
    from lmu_scaling.training.train import train

    write_json(tmp_path / "spec.json", toy.spec("lmu", 3))
    outputs = {"weights": "weights.safetensors", "history": "h.parquet", "result": "r.json", "live": "live"}
    paths = {key: tmp_path / name for key, name in outputs.items()}
    tokens = toy.write_tokens(tmp_path / "tokens")
    train(tmp_path / "spec.json", tokens, **paths, device="cpu", compile="off", trackers="tensorboard")
    assert list((tmp_path / "live/tensorboard").glob("events.*"))
