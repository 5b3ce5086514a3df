"""The LMU with implicit self-attention on a GPU: matrix products (`lmu_products.py`), then attention token by token.

The attention is a Triton kernel (`triton_attention.py`) if it proves itself on this device (`verification.py`),
otherwise torch.compile's form of the equations, otherwise the equations in torch.

Axes: b batch, n time, d channel, k = 3q' rows of Q, K and V, i row of Q, j row of K and V; r, o as in `lmu_products`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models.chunks import SEGMENT, chunks, padded
from lmu_scaling.models.forms import has_triton
from lmu_scaling.models.lmu_products import PreActivations, pre_activations, segment_starts
from lmu_scaling.models.verification import Comparison, proven

OPERATIONS = torch.library.Library("lmu_scaling", "FRAGMENT")
OPERATIONS.define("attend(Tensor y, Tensor p, int b, int n, int d, int steps, float scale) -> Tensor")
OPERATIONS.define("attend_back(Tensor y, Tensor p, Tensor dm, int steps, float scale) -> (Tensor, Tensor)")
LARGEST_Q_REDUCED = 64  # a token's rows fill the kernel's tile


def lmu_attention(
    x_bnd: Tensor,
    L_kq: Tensor,
    bias_k: Tensor,
    p_i: Tensor,
    theta: float,
    scale: float,
    dtype: torch.dtype,
    compiled: bool,
) -> Tensor:
    """m [b, n, d] (eqs. 1 and 8–10); large products run in `dtype`."""
    (b, n, d), start_bqd = x_bnd.shape, None
    if n > SEGMENT:
        x_bsnd = F.pad(x_bnd, (0, 0, 0, -n % SEGMENT)).view(b, -1, SEGMENT, d)
        start_bqd = segment_starts(x_bsnd, L_kq.shape[1], len(L_kq), theta)
        x_bnd = x_bsnd.flatten(0, 1)
    y = pre_activations(x_bnd, L_kq, bias_k, theta, dtype, start_bqd)
    return _attend(y, p_i, scale, compiled).reshape(b, -1, d)[:, :n]


def _attend(y: PreActivations, p_i: Tensor, scale: float, compiled: bool) -> Tensor:
    if compiled and has_triton() and kernel_is_right(y.d, len(p_i), y.y_ro.dtype, y.y_ro.device):
        return TritonAttention.apply(y.y_ro, p_i, (y.batch, y.cut.n, y.d, y.cut.steps), scale)
    form = compiled_tokens() if compiled and has_triton() else attend_tokens
    return form(y.tokens().to(p_i.dtype), p_i, scale)


def attend_tokens(y_kd: Tensor, p_i: Tensor, scale: float = 1.0) -> Tensor:
    """m [..., d] from the pre-activations [..., k, d] of Q, K and V, as small matrix products (eqs. 9 and 10)."""
    Q_id, K_jd, V_jd = F.gelu(y_kd).chunk(3, dim=-2)
    A_ij = torch.softmax(scale * (Q_id @ K_jd.transpose(-1, -2)), dim=-1)
    return ((p_i @ A_ij).unsqueeze(-2) @ V_jd).squeeze(-2)


@functools.cache
def compiled_tokens() -> Callable[..., Tensor]:
    return torch.compile(attend_tokens, dynamic=False)


# The kernels as operations of torch: what runs on a GPU, and what shape it has without one -----------------------


class TritonAttention(torch.autograd.Function):
    """`attend_tokens` on y as `lmu_products` lays it out."""

    @staticmethod
    def forward(ctx: Any, y_ro: Tensor, p_i: Tensor, sizes: tuple[int, int, int, int], scale: float) -> Tensor:
        ctx.save_for_backward(y_ro, p_i)
        ctx.steps, ctx.scale = sizes[3], scale
        return torch.ops.lmu_scaling.attend(y_ro, p_i, *sizes, scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        y_ro, p_i = ctx.saved_tensors
        dy_ro, dp_i = torch.ops.lmu_scaling.attend_back(y_ro, p_i, grads[0].contiguous(), ctx.steps, ctx.scale)
        return dy_ro, dp_i, None, None


@torch.library.impl(OPERATIONS, "attend", "CUDA")
def _attend_on_gpu(y_ro: Tensor, p_i: Tensor, b: int, n: int, d: int, steps: int, scale: float) -> Tensor:
    from lmu_scaling.models import triton_attention

    m_bnd = torch.empty(b, n, d, dtype=torch.float32, device=y_ro.device)
    triton_attention.attend(y_ro, p_i, m_bnd, steps, scale)
    return m_bnd


@torch.library.impl(OPERATIONS, "attend_back", "CUDA")
def _attend_back_on_gpu(y_ro: Tensor, p_i: Tensor, dm_bnd: Tensor, steps: int, scale: float) -> tuple[Tensor, Tensor]:
    from lmu_scaling.models import triton_attention

    dy_ro = torch.empty_like(y_ro)
    return dy_ro, triton_attention.attend_back(y_ro, p_i, dm_bnd, dy_ro, steps, scale)


@torch.library.impl(OPERATIONS, "attend", "Meta")
def _attend_shape(y_ro: Tensor, p_i: Tensor, b: int, n: int, d: int, steps: int, scale: float) -> Tensor:
    return torch.empty(b, n, d, dtype=torch.float32, device="meta")


@torch.library.impl(OPERATIONS, "attend_back", "Meta")
def _attend_back_shape(y_ro: Tensor, p_i: Tensor, dm_bnd: Tensor, steps: int, scale: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(y_ro), torch.empty_like(p_i)


# Proof at first use ----------------------------------------------------------------------------------------------


def kernel_is_right(d: int, q_reduced: int, dtype: torch.dtype, device: torch.device) -> bool:
    if q_reduced > LARGEST_Q_REDUCED or dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    return proven("implicit attention", (d, q_reduced, dtype), device, lambda: compare(d, q_reduced, dtype, device))


def compare(d: int, q_reduced: int, dtype: torch.dtype, device: torch.device) -> list[Comparison]:
    """The kernel and `attend_tokens` on a small input of the same tiles, value and gradients."""
    b, n, k = 3, 21, 3 * q_reduced
    cut = chunks(n, 10, k)
    count = cut.steps * k * cut.count * b * padded(d)
    wave = torch.sin(torch.arange(count, dtype=torch.float64, device=device) * 1.7).to(dtype)
    wave = wave.view(cut.steps * k, -1, padded(d))
    wave[..., d:] = 0  # as `lmu_products` leaves them
    y_ro = wave.flatten(1).requires_grad_()
    p_i = torch.cos(torch.arange(q_reduced, dtype=torch.float32, device=device)).requires_grad_()
    dm_bnd = torch.cos(torch.arange(b * n * d, dtype=torch.float32, device=device)).view(b, n, d)
    found = []
    with torch.enable_grad(), torch.autocast(device.type, enabled=False):
        y = PreActivations(y_ro, cut, b, d)
        for m_bnd in (
            TritonAttention.apply(y_ro, p_i, (b, n, d, cut.steps), d**-0.5),
            attend_tokens(y.tokens().double(), p_i.double(), d**-0.5),
        ):
            dy_ro, dp_i = torch.autograd.grad(m_bnd, (y_ro, p_i), dm_bnd.to(m_bnd.dtype))
            dy_real = PreActivations(dy_ro, cut, b, d).tokens()  # padded channels are nobody's
            found.append((m_bnd.detach(), dy_real, dp_i))
    return [Comparison(name, *pair) for name, pair in zip(("m", "dy", "dp"), zip(*found, strict=True), strict=True)]
