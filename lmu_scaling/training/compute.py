"""Device, precision and processes: what differs between a laptop, a GPU and several GPUs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from lmu_scaling.devices import choose, exact_products
from lmu_scaling.runtime import keep_freed_memory

Precision = Literal["auto", "float32", "bfloat16"]
PEAK_SIZE = {"cpu": 1024, "cuda": 8192}  # of matmul_peak: 1024³ takes a GPU 10 µs, which is mostly the launch
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


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

    def agree(self, value: bool) -> bool:
        """True on every process if it is true on any process."""
        if self.world == 1:
            return value
        flag = torch.tensor(float(value), device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def lowest(self, value: int) -> int:
        """The smallest value of all processes."""
        if self.world == 1:
            return value
        least = torch.tensor(value, device=self.device)
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        return int(least.item())

    def sum(self, value: Tensor) -> Tensor:
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean over the processes, in one message."""
        if self.world == 1:
            return
        whole = self.sum(torch.cat([gradient.flatten() for gradient in gradients])) / self.world
        for gradient, part in zip(gradients, whole.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def free_memory(self) -> int | None:
        """Free bytes of the GPU; None on a CPU, where training starts with the whole batch."""
        return torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else None

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
    if precision == "auto":
        precision = "bfloat16" if chosen.type == "cuda" else "float32"
    exact_products(lstm_in_tf32=precision == "bfloat16")
    if world > 1:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return ComputeContext(chosen, precision, rank, world)


def matmul_peak(context: ComputeContext, size: int | None = None, repeats: int = 3) -> float:
    """FLOP/s of a plain matrix product on this device: the reference of the logged utilisation."""
    size = size or PEAK_SIZE[context.device.type]
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
    """CUDA's libraries report it in their own words when they allocate work space."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
