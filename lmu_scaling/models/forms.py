"""Which form of a computation runs where: the one place that decides. All forms of a computation give the same result.

| | LMU with implicit attention | attention | LSTM | loss of the head |
|---|---|---|---|---|
| CPU, C compiler | C (`native`) | C (`native`) | C (`native`), else `torch` | C (`native`), else `tiles` |
| CPU otherwise | torch (`time` for small q', else `torch`) | `torch` | `torch` | torch tiles (`tiles`) |
| GPU | matrix products, then Triton (`products`) | `torch` | `torch` | Triton, writes no logits (`triton`) |
| GPU, no Triton or a failed check | matrix products, then torch | `torch` | `torch` | torch, in chunks (`chunks`) |

The C kernels compute in float32. Without AVX-512 that of the head serves d ≤ 80, and that of the LSTM is not used; in
float32 it is not used above d = 64 either.

A CPU with AVX512-BF16 multiplies bfloat16 in the head under autocast. Another one with a C compiler rounds the operands
alike and multiplies in float32: torch would emulate bfloat16. A GPU's products run in bfloat16 under autocast, else in
float32 (never in TF32). The meta device stands for a GPU in tests that count operations and bytes.

Under bfloat16 autocast on a CPU the body keeps float32 where torch's bfloat16 is slower: linear layers of narrow models
(`body_precision`), and attention (its backward pass takes up to 2.4 times as long).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util

import torch
from torch import Tensor

from lmu_scaling.models import native

SMALL_Q_REDUCED = 6  # up to here `time` is the faster torch form on a CPU (measured with one thread)
WIDEST_HEAD = 80  # up to here the kernel without AVX-512 is faster: 1.2 to 1.4 times at d = 48, 0.8 to 1.0 at d = 144
NARROWEST_BFLOAT16 = (
    48  # d from which torch's linear layers are faster in bfloat16 on a CPU: 1.8 to 2.2 times; 0.7 at 32
)
WIDEST_LSTM = 64  # up to here in float32: 1.1 to 1.3 times as fast as torch's; 0.9 at d = 96 (in bfloat16 1.4 times)
WIDEST_TRITON_HEAD = 256  # a block of tokens' gradients must fit a GPU's registers


def lmu_form(device: str, dtype: torch.dtype, q_reduced: int, compiled: bool) -> str:
    if device != "cpu":
        return "products"
    if compiled and dtype == torch.float32 and native.kernels() is not None:
        return "native"
    return "time" if q_reduced <= SMALL_Q_REDUCED else "torch"


def head_form(device: str, dtype: torch.dtype, width: int, compiled: bool) -> str:
    if device != "cpu":
        return "triton" if compiled and has_triton() and width <= WIDEST_TRITON_HEAD else "chunks"
    if not compiled or native.kernels() is None:
        return "tiles"
    if dtype == torch.bfloat16:
        return "native" if native.vectors() == 2 else "tiles"
    return "native" if dtype == torch.float32 and (native.vectors() or width <= WIDEST_HEAD) else "tiles"


def rounds_only(device: str, dtype: torch.dtype, compiled: bool) -> bool:
    """Whether the head's operands are rounded to bfloat16, but multiplied in float32."""
    cannot = native.kernels() is not None and native.vectors() < 2
    return device == "cpu" and dtype == torch.bfloat16 and compiled and cannot


def body_precision(x_bnd: Tensor) -> contextlib.AbstractContextManager[object]:
    """Autocast as it is, or off on a CPU for models that are too narrow to gain from it."""
    slower = x_bnd.device.type == "cpu" and x_bnd.shape[-1] < NARROWEST_BFLOAT16
    return torch.autocast("cpu", enabled=False) if slower else contextlib.nullcontext()


def attention_form(device: str, dtype: torch.dtype, compiled: bool) -> str:
    usable = device == "cpu" and dtype == torch.float32 and compiled and native.kernels() is not None
    return "native" if usable else "torch"


def lstm_form(x: Tensor, compiled: bool) -> str:
    """Torch's own multiplies float32 faster than the products that the kernel needs."""
    usable = x.device.type == "cpu" and computed_in(x) == torch.float32 and compiled and native.vectors() > 0
    return "native" if usable and (x.shape[-1] <= WIDEST_LSTM or product_dtype(x) == torch.bfloat16) else "torch"


def computed_in(x: Tensor) -> torch.dtype:
    """Half precision is no dtype for states and sums."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def step_form(device: str, dtype: torch.dtype, compiled: bool) -> str:
    """Of the products of one step of the LMU: torch's are half as fast where there is AVX-512."""
    usable = device == "cpu" and dtype == torch.float32 and compiled and native.vectors() > 0
    return "native" if usable and not torch.is_grad_enabled() else "torch"


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of large products: autocast's if it is on for x's device, else x's own, at least float32."""
    kind = "cuda" if x.device.type == "meta" else x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return computed_in(x)


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
