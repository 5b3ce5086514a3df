"""A run that is stopped and resumed equals the undisturbed run bit for bit; nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmu_scaling.errors import CheckpointError, Diverged, Interrupted, RunLocked, TokensError
from lmu_scaling.lock import exclusive
from lmu_scaling.models import variants
from lmu_scaling.runtime import read_json, write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training import loop
from lmu_scaling.training.checkpoint import Checkpoints
from lmu_scaling.training.compute import ComputeContext
from lmu_scaling.training.loop import Trainer
from lmu_scaling.training.monitor import Monitor
from lmu_scaling.training.train import train
from tests import toy
from tests.needs import ROOT

STEPS = 12
CPU = ComputeContext(torch.device("cpu"), "float32")
OUTPUTS = ("weights", "history", "result")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_tokens(tmp_path_factory.mktemp("tokens"))


def files(folder: Path) -> dict[str, Path]:
    return {"weights": folder / "w.safetensors", "history": folder / "h.parquet", "result": folder / "r.json"}


def run(folder: Path, tokens: Path, spec: dict[str, Any], compile: str = "off", **how: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "spec.json", spec)
    train(folder / "spec.json", tokens, folder / "live", **files(folder), device="cpu", compile=compile, **how)
    return read_json(files(folder)["result"])


def assert_same(one: Path, other: Path) -> None:
    """Weights and history to the byte; the result but for the machine's part."""
    assert files(one)["weights"].read_bytes() == files(other)["weights"].read_bytes()
    assert files(one)["history"].read_bytes() == files(other)["history"].read_bytes()
    results = [read_json(files(folder)["result"]) for folder in (one, other)]
    for result in results:
        del result["machine"]
    assert results[0] == results[1]


def stop_at(trainer: Trainer, stops: list[int]) -> Any:
    """Interrupt once at each of these steps."""

    def interrupted() -> bool:
        if stops and trainer.step == stops[0]:
            stops.pop(0)
            return True
        return False

    return interrupted


def trained(
    spec: dict[str, Any], tokens: Path, live: Path, stops: list[int], compile: str, compute: ComputeContext = CPU
) -> Trainer:
    """Run in this process, interrupting at `stops` and starting afresh from the checkpoint each time."""
    stops = sorted(stops)
    while True:
        stores = [TokenStore(tokens.parent, split) for split in ("train", "validation")]
        trainer = Trainer(RunSpec.from_dict(spec), *stores, compute, compile=compile)
        monitor = Monitor(live, "test", 1, 1.0, 1.0, main=False)
        try:
            trainer.run(monitor, Checkpoints(live / "c", "id"), interrupted=stop_at(trainer, stops))
        except Interrupted:
            continue
        return trainer


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("compile", ["off", "auto"])  # in torch alone, and by kernels where there is a compiler
@pytest.mark.parametrize("variant", variants())
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stops=st.lists(st.integers(1, STEPS - 1), min_size=1, max_size=3, unique=True))
def test_resume_at_random_steps_is_bit_exact(
    variant: str, compile: str, precision: str, stops: list[int], tokens: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    spec = toy.spec(variant, STEPS, plateau={"factor": 0.5, "patience": 1, "min_delta": 10.0})
    torch.set_num_threads(1)
    compute = ComputeContext(torch.device("cpu"), precision)
    straight = trained(spec, tokens, tmp_path / "a", [], compile, compute)
    assert_same_state(straight, trained(spec, tokens, tmp_path / "b", stops, compile, compute))


def assert_same_state(straight: Trainer, resumed: Trainer) -> None:
    for (name, p), (_, q) in zip(straight.model.named_parameters(), resumed.model.named_parameters(), strict=True):
        assert torch.equal(p, q), name
    for name, moment in straight.optimiser.tensors().items():
        assert torch.equal(moment, resumed.optimiser.tensors()[name]), name
    assert straight.history == resumed.history
    assert straight.plateau.state() == resumed.plateau.state()


def test_a_stop_between_two_rows_of_history_changes_nothing(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long run has a row for many steps: the losses since the last row are part of its state."""
    monkeypatch.setattr(loop, "ROWS", 4)
    spec = toy.spec("lstm", STEPS, plateau={"factor": 0.5, "patience": 1, "min_delta": 10.0})
    straight = trained(spec, tokens, tmp_path / "a", [], "off")
    assert [row["step"] for row in straight.history] == [3, 5, 6, 9, 10, 12]
    assert_same_state(straight, trained(spec, tokens, tmp_path / "b", [2, 7, 11], "off"))


def with_dropout(variant: str, steps: int = STEPS) -> dict[str, Any]:
    spec = toy.spec(variant, steps)
    return spec | {"model": spec["model"] | {"dropout": 0.3}}


def test_with_dropout_a_resumed_run_is_bit_exact_and_seeds_differ(tokens: Path, tmp_path: Path) -> None:
    whole = trained(with_dropout("lmu"), tokens, tmp_path / "whole", [], "off")
    resumed = trained(with_dropout("lmu"), tokens, tmp_path / "resumed", [2, 7], "off")
    assert resumed.history == whole.history
    masks = []
    for seed, step in ((1, 0), (1, 1), (2, 0)):
        whole.settings, whole.step = dataclasses.replace(whole.settings, seed=seed), step
        whole.draw_masks()
        masks.append(torch.rand(4).tolist())
    assert masks[0] != masks[1] != masks[2] != masks[0]


def test_validation_is_without_dropout_and_training_goes_on_with_it(tokens: Path) -> None:
    trainer = trainer_of(with_dropout("transformer"), tokens)
    assert trainer.validate() == trainer.validate()
    without = trainer_of(toy.spec("transformer"), tokens)
    without.model.load_state_dict(trainer.model.state_dict())
    assert trainer.validate() == without.validate()
    assert trainer.model.training


def test_the_run_learns(tokens: Path, tmp_path: Path) -> None:
    result = run(tmp_path, tokens, toy.spec("transformer", 150, learning_rate=0.03))
    assert result["validation_loss"] < 5.2  # a uniform guess has ln 300 = 5.70


def test_a_validation_split_without_a_window_is_explained_before_the_first_step(tmp_path: Path) -> None:
    tokens = toy.write_tokens(tmp_path / "tokens", other=24)
    with pytest.raises(TokensError, match="validation split has 24 tokens, fewer than one window of 24"):
        run(tmp_path / "run", tokens, toy.spec("lstm"))
    assert not (tmp_path / "run/live/progress.jsonl").exists()


def test_a_seed_repeats_bit_for_bit_and_two_seeds_differ(tokens: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(tmp_path / name, tokens, toy.spec("lmu", 4, seed=seed))
    assert_same(tmp_path / "a", tmp_path / "b")
    assert files(tmp_path / "a")["weights"].read_bytes() != files(tmp_path / "c")["weights"].read_bytes()


@pytest.mark.parametrize("variant", variants())
def test_the_loss_does_not_depend_on_the_micro_batch(variant: str, tokens: Path, tmp_path: Path) -> None:
    """To rounding; weights are not compared, since Adam blows up the rounding of a gradient that is 0 (key biases)."""
    losses = []
    for micro in (4, 3, 1):
        run(tmp_path / str(micro), tokens, toy.spec(variant, 8), micro_batch=micro)
        losses.append(pq.read_table(files(tmp_path / str(micro))["history"]).column("loss").to_numpy())
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-5)


def command(folder: Path, tokens: Path, **extra: str) -> list[str]:
    out = {key: str(path) for key, path in files(folder).items()}
    flags = {"spec": str(folder / "spec.json"), "tokens": str(tokens), "live": str(folder / "live"), **out, **extra}
    return [sys.executable, "-m", "lmu_scaling", "train", *(x for k, v in flags.items() for x in (f"--{k}", v))]


def start(folder: Path, tokens: Path, spec: dict[str, Any], **extra: str) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "spec.json", spec)
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        command(folder, tokens, **extra), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=root
    )


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_checkpoints_at_once_and_the_run_resumes(number: int, tokens: Path, tmp_path: Path) -> None:
    spec = toy.spec("lmu", 400)
    process = start(tmp_path / "a", tokens, spec)
    wait_for(lambda: (tmp_path / "a" / "live" / "progress.jsonl").exists())
    wait_for(lambda: (tmp_path / "a" / "live" / "progress.jsonl").stat().st_size > 0)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output  # EX_TEMPFAIL: the profile's retry submits the job again
    assert "a checkpoint was written" in output and "Traceback" not in output
    again = start(tmp_path / "a", tokens, spec)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    assert "resuming at step" in output
    undisturbed = start(tmp_path / "b", tokens, spec)
    assert undisturbed.communicate(timeout=120) and undisturbed.returncode == 0
    assert_same(tmp_path / "a", tmp_path / "b")
    assert not list((tmp_path / "a" / "live").glob("*/step-*")), "a finished run keeps no checkpoints"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["lmu_scaling", "lmu_scaling.training.launch"])
def test_signals_after_the_last_step_do_not_make_a_finished_run_fail(module: str, tokens: Path, tmp_path: Path) -> None:
    """They arrive until the process has ended, also while Python unloads torch."""
    folder = tmp_path / "a"
    folder.mkdir()
    write_json(folder / "spec.json", toy.spec("lmu", 20))
    words = command(folder, tokens)
    words[2:3] = [module, "0"] if module.endswith("launch") else [module]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("done:"):
        assert line, "the run has ended without its last line"
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert process.returncode == 0
    assert all(path.is_file() for path in files(folder).values())


@pytest.mark.slow
def test_a_kill_loses_at_most_the_time_since_the_last_checkpoint(tokens: Path, tmp_path: Path) -> None:
    spec = toy.spec("transformer", 1000)
    process = start(tmp_path / "a", tokens, spec, **{"checkpoint-seconds": "0.05"})
    wait_for(lambda: len(list((tmp_path / "a" / "live").glob("*/step-*"))) == 2)
    process.kill()
    process.communicate()
    again = start(tmp_path / "a", tokens, spec)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and "resuming at step" in output, output
    run(tmp_path / "b", tokens, spec, compile="auto")  # as the command does
    assert files(tmp_path / "a")["weights"].read_bytes() == files(tmp_path / "b")["weights"].read_bytes()


def checkpointed(tokens: Path, folder: Path, spec: dict[str, Any], steps: list[int]) -> Checkpoints:
    """Checkpoints at these steps, written by a real run."""
    checkpoints = Checkpoints(folder, "id")
    stores = [TokenStore(tokens.parent, split) for split in ("train", "validation")]
    for step in steps:
        trainer = Trainer(RunSpec.from_dict(spec), *stores, CPU, compile="off")
        with pytest.raises(Interrupted):
            trainer.run(Monitor(folder, "t", 1, 1.0, 1.0, False), checkpoints, interrupted=stop_at(trainer, [step]))
    return checkpoints


@pytest.mark.parametrize("damage", ["truncate", "flip", "no meta", "flip meta"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    damage: str, tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = checkpointed(tokens, tmp_path / "c", toy.spec("lstm"), [3, 7])
    newest = checkpoints.found()[-1]
    state = newest / "state.safetensors"
    data = bytearray(state.read_bytes())
    if damage == "truncate":
        state.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        data[-5] ^= 1
        state.write_bytes(data)
    elif damage == "flip meta":  # a digit of a loss: still JSON, and of the right run
        meta = (newest / "meta.json").read_text()
        assert '"loss": 5.' in meta
        (newest / "meta.json").write_text(meta.replace('"loss": 5.', '"loss": 4.', 1))
    else:
        (newest / "meta.json").unlink()
    found = checkpoints.latest()
    assert found is not None and found.step == 3
    assert "step-000000007 is damaged" in capsys.readouterr().err


def test_only_the_last_two_checkpoints_are_kept(tokens: Path, tmp_path: Path) -> None:
    checkpoints = checkpointed(tokens, tmp_path / "c", toy.spec("lstm"), [2, 4, 6, 8])
    assert [path.name for path in checkpoints.found()] == ["step-000000006", "step-000000008"]


def test_a_checkpoint_of_another_run_is_refused_with_a_clear_message(tokens: Path, tmp_path: Path) -> None:
    checkpointed(tokens, tmp_path / "c", toy.spec("lstm"), [3])
    with pytest.raises(CheckpointError, match="belongs to another run"):
        Checkpoints(tmp_path / "c", "another").latest()


def test_changing_the_spec_starts_afresh_instead_of_resuming(tokens: Path, tmp_path: Path) -> None:
    first = run(tmp_path, tokens, toy.spec("lstm", 6))
    second = run(tmp_path, tokens, toy.spec("lstm", 6, learning_rate=0.02))
    assert first["identity"] != second["identity"]
    assert second["steps"] == 6


def hold(path: Path, ready: Any, release: Any) -> None:
    with exclusive(path):
        ready.set()
        release.wait(30)


def test_a_second_process_leaves_or_waits_for_the_first(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "lock", ready, release))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(RunLocked, match="another process trains this run"), exclusive(tmp_path / "lock", wait=False):
        pass
    release.set()
    with exclusive(tmp_path / "lock", wait=True, every=0.05):
        pass
    holder.join(10)


def test_a_run_that_another_process_trains_is_left_alone(tokens: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "live" / "lock-0", ready, release))
    holder.start()
    try:
        assert ready.wait(30)
        with pytest.raises(RunLocked):
            run(tmp_path, tokens, toy.spec("lstm", 3), no_wait=True)
        assert not files(tmp_path)["weights"].exists()
    finally:
        release.set()
        holder.join(10)


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "lock", ready, release))
    holder.start()
    assert ready.wait(30)
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join(10)
    with exclusive(tmp_path / "lock", wait=False):
        pass


def test_a_finished_run_is_not_trained_again_by_a_duplicate_job(
    tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, tokens, toy.spec("lstm", 3))
    before = files(tmp_path)["weights"].stat().st_mtime_ns
    run(tmp_path, tokens, toy.spec("lstm", 3))
    assert files(tmp_path)["weights"].stat().st_mtime_ns == before
    assert "nothing to do" in capsys.readouterr().out


def test_a_diverging_run_stops_names_the_step_and_keeps_the_last_good_state(tokens: Path, tmp_path: Path) -> None:
    spec = toy.spec("transformer", 60, learning_rate=1e30, clip=None)
    with pytest.raises(Diverged, match=r"step \d+ of 60") as caught:
        run(tmp_path, tokens, spec)
    assert not files(tmp_path)["weights"].exists()
    kept = list((tmp_path / "live").glob("*/step-*"))
    assert kept and str(kept[-1]) in caught.value.where
    state = Checkpoints(kept[-1].parent, json.loads((kept[-1] / "meta.json").read_text())["identity"]).latest()
    assert state is not None
    assert all(torch.isfinite(t).all() for name, t in state.tensors.items() if name.startswith("weights."))


def trainer_of(spec: dict[str, Any], tokens: Path) -> Trainer:
    stores = [TokenStore(tokens.parent, split) for split in ("train", "validation")]
    return Trainer(RunSpec.from_dict(spec), *stores, CPU, compile="off")


def test_the_batch_behind_a_divergence_is_named(tokens: Path, tmp_path: Path) -> None:
    """On a GPU losses are looked at in groups: the message is about the step that went wrong, not about the last."""
    trainer = trainer_of(toy.spec("lstm", 60), tokens)
    trainer.step, trainer.unrecorded = 9, [torch.tensor(loss) for loss in (5.0, float("nan"), 5.0)]
    windows = trainer.sampler.batch(7).tolist()
    with pytest.raises(Diverged) as caught:
        trainer.record(0.1, torch.tensor(1.0), None, Checkpoints(tmp_path, "id"))
    assert "step 7 of 60" in caught.value.what
    assert str(windows) in caught.value.what


def test_a_loss_that_stays_above_its_start_stops_the_run(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="stayed above its initial value"):
        run(tmp_path, tokens, toy.spec("transformer", 60, learning_rate=3.0, warmup=0.0))
    assert not files(tmp_path)["weights"].exists()


def test_no_checkpoint_holds_weights_that_are_not_numbers(tokens: Path, tmp_path: Path) -> None:
    """A gradient can overflow while its loss is finite: the good state is the one before, even if a save is due."""
    checkpoints = checkpointed(tokens, tmp_path / "c", toy.spec("lstm"), [3])
    trainer = trainer_of(toy.spec("lstm"), tokens)
    trainer.resume(checkpoints)
    trainer.step = 7
    with torch.no_grad():
        next(trainer.model.parameters()).view(-1)[0] = float("inf")
    with pytest.raises(Diverged) as caught:
        trainer.save(checkpoints)
    assert [path.name for path in checkpoints.found()] == ["step-000000003"]
    assert "step-000000003" in caught.value.where


def test_a_last_step_that_spoils_the_weights_is_a_divergence(tokens: Path, tmp_path: Path) -> None:
    """Its own loss was finite: only the validation after it shows what it did."""
    spec = toy.spec("lmu", 1, learning_rate=1e30)
    with pytest.raises(Diverged, match="step 0 of 1"):
        run(tmp_path / "alone", tokens, spec)
    result = run(tmp_path / "sweep", tokens, spec, keep_going=True)
    assert (result["diverged"], result["validation_loss"]) == (True, None)


def test_a_gradient_whose_norm_overflows_does_not_keep_a_checkpoint_from_being_written(
    tokens: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(toy.spec("lstm"), tokens)
    trainer.step, trainer.unrecorded = 5, [torch.tensor(5.0)]
    checkpoints = Checkpoints(tmp_path, "id")
    trainer.record(0.1, torch.tensor(float("inf")), 5.0, checkpoints)
    trainer.save(checkpoints)
    state = checkpoints.latest()
    assert state is not None
    assert state.meta["history"][0]["grad_norm"] is None


def test_a_diverging_sweep_run_is_a_result(tokens: Path, tmp_path: Path) -> None:
    result = run(tmp_path, tokens, toy.spec("transformer", 60, learning_rate=1e30, clip=None), keep_going=True)
    assert result["diverged"] is True
