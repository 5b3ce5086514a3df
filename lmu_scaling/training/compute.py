"""Device, precision and processes: what differs between a laptop, a GPU and several GPUs."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lmu_scaling.devices import choose
from lmu_scaling.runtime import keep_freed_memory

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class ComputeContext:
    """Device and precision of this process, and its rank among the processes of the run."""

    device: torch.device
    precision: str  # "float32" or "bfloat16"
    rank: int = 0
    world: int = 1

    @property
    def main(self) -> bool:
        return self.rank == 0

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Matrix products in bfloat16 where that was chosen; FFT, softmax and the loss keep float32 by themselves."""
        if self.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def wrap(self, model: nn.Module) -> nn.Module:
        if self.world == 1:
            return model
        ids = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)

    def agree(self, value: bool) -> bool:
        """True on every process if it is true on any process."""
        if self.world == 1:
            return value
        flag = torch.tensor(float(value), device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def mean(self, value: Tensor) -> Tensor:
        if self.world > 1:
            dist.all_reduce(value)
            value /= self.world
        return value

    def close(self) -> None:
        if self.world > 1:
            dist.destroy_process_group()


def compute_context(device: str = "auto", precision: str = "auto", threads: int = 1) -> ComputeContext:
    """Choose the device; under torchrun also join the process group."""
    torch.set_num_threads(threads)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", 0))
    chosen = choose(device)
    if chosen.type == "cuda" and chosen.index is None:
        chosen = torch.device("cuda", local)
    if chosen.type == "cpu":
        keep_freed_memory()
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    if precision == "auto":
        precision = "bfloat16" if chosen.type == "cuda" else "float32"
    if world > 1:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return ComputeContext(chosen, precision, rank, world)


def matmul_peak(context: ComputeContext, size: int = 1024, repeats: int = 3) -> float:
    """FLOP/s of a plain matrix product on this device: the reference of the logged utilisation."""
    dtype = torch.bfloat16 if context.precision == "bfloat16" else torch.float32
    a = torch.randn(size, size, device=context.device, dtype=dtype)
    best = float("inf")
    for _ in range(repeats + 1):
        _synchronise(context.device)
        start = time.perf_counter()
        a @ a
        _synchronise(context.device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def peak_memory(context: ComputeContext) -> int:
    """Peak memory in bytes: of the GPU if there is one, else of the process."""
    if context.device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(context.device))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
