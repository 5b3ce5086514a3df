"""What a GPU would compute wrongly or stumble over, shown without one."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from lmu_scaling import devices
from lmu_scaling.counting import training_memory
from lmu_scaling.models import resolve
from lmu_scaling.models.network import build
from lmu_scaling.planning import rehearsal
from lmu_scaling.runtime import read_json, write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training import compute as module
from lmu_scaling.training import loop
from lmu_scaling.training.compute import ComputeContext, compute_context, matmul_peak, out_of_memory
from tests import toy
from tests.unit.test_training_processes import ROOT, arguments

CPU = torch.device("cpu")


# --------------------------------------------------------------------------------------------------------- precision
def test_the_lstm_runs_in_float32_under_autocast_forwards_and_backwards() -> None:
    """cuDNN's autocast would choose float16, in which gradients of the paper's size round to zero."""
    layer = build(resolve("lstm", 16, 20, 30, blocks=1), seed=0, compile="off").layers[0]  # the form of GPUs
    x = torch.randn(3, 20, 16)
    results = []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            y = layer(x)
        assert y.dtype == torch.float32
        results.append([y, *torch.autograd.grad(y.square().mean() * 1e-7, layer.parameters())])
    assert all(torch.equal(under, plain) for under, plain in zip(*results, strict=True))


@pytest.fixture
def loose_products():
    """As another library may have left them; restored afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, cudnn.allow_tf32
    matmul.allow_tf32 = matmul.allow_bf16_reduced_precision_reduction = cudnn.allow_tf32 = True
    yield matmul, cudnn
    matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, cudnn.allow_tf32 = before


@pytest.mark.parametrize(("precision", "lstm"), [("float32", False), ("bfloat16", True), ("auto", True)])
def test_training_on_a_gpu_rounds_no_float32_product_to_tf32(
    precision: str, lstm: bool, loose_products, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L·H and QKᵀ as in evaluation; only the LSTM's products may, beside others in bfloat16."""
    monkeypatch.setattr(module, "choose", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert compute_context("cuda", precision).device.type == "cuda"
    matmul, cudnn = loose_products
    assert not matmul.allow_tf32
    assert not matmul.allow_bf16_reduced_precision_reduction
    assert cudnn.allow_tf32 == lstm


def test_whatever_chooses_a_device_computes_in_full_float32(loose_products) -> None:
    devices.choose("cpu")
    matmul, cudnn = loose_products
    assert not matmul.allow_tf32 and not cudnn.allow_tf32


# ------------------------------------------------------------------------------------------------------------ memory
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_a_library_could_not_get_is_out_of_memory(error: RuntimeError) -> None:
    assert out_of_memory(error)
    assert not out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))


@dataclasses.dataclass(frozen=True)
class GPU(ComputeContext):
    """Says how much memory is free, and computes on the CPU."""

    free: int = 0

    def free_memory(self) -> int:
        return self.free


def trainer(tmp_path: Path, compute: ComputeContext, variant: str = "lmu", batch: int = 8) -> loop.Trainer:
    tokens = toy.write_tokens(tmp_path / "tokens")
    stores = [TokenStore(tokens.parent, split) for split in ("train", "validation")]
    return loop.Trainer(RunSpec.from_dict(toy.spec(variant, batch=batch)), *stores, compute, compile="off")


def test_the_first_micro_batch_on_a_gpu_is_what_the_memory_model_says_will_fit(tmp_path: Path) -> None:
    needs = training_memory(RunSpec.from_dict(toy.spec("lmu")).model, gpu=True)
    for fitting, expected in ((8, 8), (5, 4), (2, 2), (0, 1)):
        free = int(needs.total(fitting) / loop.MEMORY_SHARE) + 1
        assert trainer(tmp_path, GPU(CPU, "float32", free=free)).micro_batch == expected
    assert trainer(tmp_path, ComputeContext(CPU, "float32")).micro_batch == 8


@pytest.mark.slow
def test_when_one_process_runs_out_of_memory_all_of_them_halve_and_the_loss_is_the_same(tmp_path: Path) -> None:
    tokens = toy.write_tokens(tmp_path / "tokens")
    histories = []
    for program in (["-m", "lmu_scaling"], [str(ROOT / "tests/small_device.py")]):
        folder = tmp_path / str(len(histories))
        write_json(folder / "spec.json", toy.spec("lmu", 4, batch=6))
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(
            [*launch, *arguments(folder, tokens)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        histories.append(pq.read_table(folder / "h.parquet"))
    assert "out of memory at step 0: continuing with a micro-batch of 1" in done.stdout
    assert read_json(folder / "r.json")["machine"]["micro_batch"] == 1
    for column in ("loss", "validation_loss"):
        roomy, small = (np.array(history.column(column).to_pylist(), float) for history in histories)
        np.testing.assert_allclose(small, roomy, rtol=1e-5)


def test_each_process_validates_its_share_and_together_they_validate_all(tmp_path: Path) -> None:
    alone = trainer(tmp_path, ComputeContext(CPU, "float32"))
    expected = alone.validate()
    seen: list[int] = []
    shares = []
    for rank in range(3):
        gathered = alone.validation.gather

        def spy(part, n, gathered=gathered):
            seen.extend(part.tolist())
            return gathered(part, n)

        one = trainer(tmp_path, Apart(CPU, "float32", rank=rank, world=3), batch=9)
        one.validation.gather = spy
        shares.append(one.validate())
    assert len(seen) == len(set(seen)) == alone.settings.validation_sequences
    assert sum(shares) == pytest.approx(expected, rel=1e-6)


class Apart(ComputeContext):
    """One of several processes, whose sums are not exchanged."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def lowest(self, value: int) -> int:
        return value


# --------------------------------------------------------------------------------------------------------- rehearsal
def test_the_yardstick_of_utilisation_is_a_product_that_fills_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.PEAK_SIZE["cuda"] == 8192
    monkeypatch.setitem(module.PEAK_SIZE, "cpu", 64)
    made = []
    original = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, **how: made.append(size) or original(*size, **how))
    assert matmul_peak(ComputeContext(CPU, "float32")) > 0
    assert made == [(64, 64)]


def test_a_rehearsal_of_many_sizes_times_compiled_code_for_every_one_of_them() -> None:
    """Dynamo compiles a function for eight shapes and then runs it uncompiled."""
    import torch._dynamo

    compiled: list[int] = []

    def backend(graph, inputs):
        compiled.append(len(inputs))
        return graph.forward

    doubled = torch.compile(lambda x: 2 * x, backend=backend, dynamic=False)
    sizes = range(3, 3 + 2 * torch._dynamo.config.recompile_limit)
    for size in sizes:
        rehearsal.forget_compiled_code()
        doubled(torch.ones(size))
    assert len(compiled) == len(sizes)


def test_the_rehearsal_forgets_compiled_code_before_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmu_scaling.config import load

    config = load(ROOT / "config.yaml", ROOT / "workflow/presets/smoke.yaml")
    events: list[str] = []
    monkeypatch.setattr(rehearsal, "forget_compiled_code", lambda: events.append("forget"))
    monkeypatch.setattr(rehearsal, "_seconds_per_step", lambda trainer, rows: events.append("time") or 1.0)
    rehearsal.measure_throughput(config)
    assert events == ["forget", "time"] * (len(events) // 2)
    assert len(events) >= 8
