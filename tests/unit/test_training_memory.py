"""Memory that runs out halves the micro-batch; shapes and the loss's graph hold on a device without memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from lmu_scaling.errors import OutOfMemory
from lmu_scaling.models import resolve, variants
from lmu_scaling.models.layers.lmu import LMU
from lmu_scaling.models.network import build
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training import loop
from lmu_scaling.training.compute import ComputeContext
from lmu_scaling.training.loop import Objective
from tests import toy
from tests.unit.test_training_resume import files, run


class SmallDevice(Objective):
    """Raises what a GPU raises as soon as more than `ROOM` sequences come at once."""

    ROOM = 2

    def forward(self, inputs_bn: torch.Tensor, targets_bn: torch.Tensor) -> torch.Tensor:
        if len(inputs_bn) > self.ROOM:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return super().forward(inputs_bn, targets_bn)


def test_out_of_memory_halves_the_micro_batch_says_so_and_changes_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens, spec = toy.write_tokens(tmp_path / "tokens"), toy.spec("lmu", 8, batch=6)
    run(tmp_path / "roomy", tokens, spec)
    monkeypatch.setattr(loop, "Objective", SmallDevice)
    result = run(tmp_path / "small", tokens, spec)
    assert result["machine"]["micro_batch"] == 2
    assert "out of memory at step 0: continuing with a micro-batch of 3" in capsys.readouterr().out
    histories = [pq.read_table(files(tmp_path / name)["history"]).column("loss") for name in ("roomy", "small")]
    assert histories[1].to_pylist() == pytest.approx(histories[0].to_pylist(), rel=1e-5)


def test_a_single_sequence_that_does_not_fit_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Objective", SmallDevice)
    monkeypatch.setattr(SmallDevice, "ROOM", 0)
    with pytest.raises(OutOfMemory, match="out of memory with 1 sequence"):
        run(tmp_path, toy.write_tokens(tmp_path / "tokens"), toy.spec("lmu", 8, batch=6))


@pytest.mark.parametrize("variant", variants())
def test_the_papers_largest_model_has_its_shapes_on_a_device_without_memory(variant: str) -> None:
    """The form that GPUs use, at n = 1024 and 64 sequences: on a real device this would take tens of gigabytes."""
    model = build(resolve(variant, 204, 1024, 50257), seed=0, compile="off").to("meta")
    h_bnd = model.hidden(torch.zeros(64, 1024, dtype=torch.long, device="meta"))
    assert h_bnd.shape == (64, 1024, 204)
    h_bnd.sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.layers.parameters())


def test_in_bfloat16_the_memorys_gradients_keep_their_float32_digits(tmp_path: Path) -> None:
    """Its products run in float32 forwards, and so must they backwards: autocast would round their gradients."""
    tokens, compute = toy.write_tokens(tmp_path / "tokens"), ComputeContext(torch.device("cpu"), "bfloat16")
    stores = [TokenStore(tokens.parent, split) for split in ("train", "validation")]
    trainer = loop.Trainer(RunSpec.from_dict(toy.spec("lmu")), *stores, compute, compile="off")
    rows = torch.from_numpy(stores[0].gather(trainer.sampler.batch(0), trainer.context))
    trainer.accumulate(rows[:, :-1], rows[:, 1:])
    gradients = [layer.L.grad for layer in trainer.model.layers if isinstance(layer, LMU)]
    assert len(gradients) == 3
    assert not any(torch.equal(gradient, gradient.bfloat16().float()) for gradient in gradients)
