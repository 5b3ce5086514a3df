"""The rivals of the layer benchmark: the LMU with implicit self-attention, written in several ways.

All have the same parameters (L, p; biases are zero) and give the same m [b, n, d]; the per-channel form gives M only.
Each rival is written as fast as its idea allows: time is innermost for the FFTs, one transform of x serves all rows,
and the tokens are made contiguous before the small products of the attention (1.1 to 1.4 times faster than strided).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models import fused, native
from lmu_scaling.models.lmu import impulse

NAIVE = "naive torch: full M by FFT, then L, then attention"
CHANNEL = "per-channel FFT, torch: full M only, no L, no attention"
EAGER = "eager reduced order, torch: L·H by FFT, then attention"
INDUCTOR = "time tiles + torch.compile"
TORCH = "ours, torch only (no compiler)"
OURS = "ours: compiled kernels"
OURS_AGAIN = "ours: compiled kernels, recomputing"
SIZES = {"S": (48, 100, 10), "M": (96, 150, 15), "L": (204, 250, 25)}  # d, q, q'
TILE = 32


def attend_literally(y_bnkd: Tensor, p_i: Tensor) -> Tensor:
    """Eqs. 8–10 as printed: M' is formed."""
    Q, K, V = F.gelu(y_bnkd).chunk(3, dim=2)
    mixed_bnid = torch.softmax(Q @ K.transpose(-1, -2), dim=-1) @ V
    return torch.einsum("i,bnid->bnd", p_i, mixed_bnid)


def convolve(x_bnd: Tensor, filters_kn: Tensor) -> Tensor:
    """[b, n, k, d] by FFT along contiguous time, with torch's own gradient."""
    n = x_bnd.shape[1]
    X_bdf = torch.fft.rfft(x_bnd.transpose(1, 2), n=2 * n)
    F_kf = torch.fft.rfft(filters_kn, n=2 * n)
    y_bkdn = torch.fft.irfft(X_bdf[:, None] * F_kf[:, None], n=2 * n)[..., :n]
    return y_bkdn.permute(0, 3, 1, 2)


def tile_attention(y_tkdc: Tensor, p_i: Tensor) -> Tensor:
    """Time-tiled sums that torch.compile fuses into one loop."""
    Q, K, V = F.gelu(y_tkdc).unflatten(1, (3, -1)).unbind(1)
    A = torch.softmax((Q[:, :, None] * K[:, None]).sum(3), dim=2)
    w = (p_i[:, None, None] * A).sum(1)
    return (w[:, :, None] * V).sum(1)


class TiledConvolution(torch.autograd.Function):
    """y [b n/c, k, d, c] in tiles of time, for `tile_attention`; per sequence, with one set of FFTs backward."""

    @staticmethod
    def forward(ctx: Any, x_bnd: Tensor, filters_kn: Tensor) -> Tensor:
        b, n, d = x_bnd.shape
        k = len(filters_kn)
        X_bdf = torch.fft.rfft(x_bnd.transpose(1, 2), n=2 * n)
        F_kf = torch.fft.rfft(filters_kn, n=2 * n)
        y = x_bnd.new_empty(b, n // TILE, k, d, TILE)
        product = X_bdf.new_empty(k, d, n + 1)
        for i in range(b):
            torch.mul(X_bdf[i], F_kf[:, None], out=product)
            rows_kdn = torch.fft.irfft(product, n=2 * n)[..., :n]
            y[i].copy_(rows_kdn.view(k, d, -1, TILE).permute(2, 0, 1, 3))
        ctx.save_for_backward(X_bdf, F_kf)
        return y.flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        X_bdf, F_kf = ctx.saved_tensors
        (b, d, _), k = X_bdf.shape, len(F_kf)
        dy = grads[0].view(b, -1, k, d, TILE)
        n = dy.shape[1] * TILE
        dX_bdf, dF_kf = torch.empty_like(X_bdf), torch.zeros_like(F_kf)
        padded = dy.new_zeros(k, d, 2 * n)
        for i in range(b):
            padded[..., :n].view(k, d, -1, TILE).copy_(dy[i].permute(1, 2, 0, 3))
            dY_kdf = torch.fft.rfft(padded)
            dX_bdf[i] = (dY_kdf * F_kf.conj()[:, None]).sum(0)
            dF_kf += (dY_kdf * X_bdf[i].conj()).sum(1)
        dx_bdn = torch.fft.irfft(dX_bdf, n=2 * n)[..., :n]
        return dx_bdn.transpose(1, 2), torch.fft.irfft(dF_kf, n=2 * n)[..., :n]


def forms(size: str, n: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Each maps x, L and p to m."""
    _, q, r = SIZES[size]
    H_qn = impulse(q, n).tensor("H", n, torch.float32, torch.device("cpu"))
    bias_k = torch.zeros(3 * r)
    compiled = torch.compile(tile_attention, dynamic=False)

    def inductor(x: Tensor, L: Tensor, p: Tensor) -> Tensor:
        m_tdc = compiled(TiledConvolution.apply(x, L @ H_qn), p)
        return m_tdc.view(len(x), -1, *m_tdc.shape[1:]).transpose(2, 3).reshape(x.shape)

    def ours(function: Any, keep: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda x, L, p: function.apply(x, L @ H_qn, bias_k, p, 1.0, keep)

    found: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        NAIVE: lambda x, L, p: attend_literally(torch.einsum("kq,bnqd->bnkd", L, convolve(x, H_qn)), p),
        CHANNEL: lambda x, L, p: convolve(x, H_qn),
        EAGER: lambda x, L, p: attend_literally(convolve(x, L @ H_qn).contiguous(), p),
        INDUCTOR: inductor,
        TORCH: ours(fused.TorchLMU, keep=True),
    }
    if native.kernels() is not None:
        found[OURS] = ours(fused.NativeLMU, keep=True)
        found[OURS_AGAIN] = ours(fused.NativeLMU, keep=False)
    return found


def inputs(size: str, batch: int, n: int) -> list[Tensor]:
    d, q, r = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    x, L, p = (torch.randn(shape, generator=generator) for shape in ((batch, n, d), (3 * r, q), (r,)))
    return [part.requires_grad_() for part in (x, L / q**0.5, p)]


def forward_only(form: Callable[..., Tensor], leaves: list[Tensor]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            form(*leaves)

    return run


def both_ways(form: Callable[..., Tensor], leaves: list[Tensor]) -> Callable[[], None]:
    """Forward and backward; the gradient that comes in is m itself."""

    def run() -> None:
        m = form(*leaves)
        torch.autograd.grad(m, leaves, m.detach(), allow_unused=True)

    return run


def memory_probe(size: str, form: str, batch: int, n: int, held: bool) -> Callable[[], Any]:
    """For `harness.peak_memory`: the forward pass, whose graph stays alive, or forward and backward."""
    torch.set_num_threads(1)
    leaves = inputs(size, batch, n)
    chosen = forms(size, n)[form]
    return (lambda: chosen(*leaves)) if held else both_ways(chosen, leaves)
