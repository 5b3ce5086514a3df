"""The memory's pre-activations y = L·M + b by matrix products, for GPUs (eqs. 1 and 8; appendix A.1).

A sequence is cut into J chunks of C steps. Two products with frozen matrices replace the FFT:

    m_j = S_j x                      the memory at the start of every chunk: H itself, computed in float64, no scan
    y   = W [x of the chunk; m_j; 1]      W = [Toeplitz(L H), L Ā^(c+1), b]

Both are plain products of two matrices, forwards and backwards, because Z = [x; m; 1] is laid out as [row, (chunk,
sequence, channel)]. Per token and block they move 12 bytes for each number of y; the FFT moves 188. A sequence of more
than `SEGMENT` steps is cut into segments, each of which starts with the memory that the one before it leaves.

Axes: b batch, n time, d channel (padded to a multiple of 8), j chunk, c step of a chunk, k = 3q' rows of Q, K and V,
q order of the memory, z row of Z, o = (j, b, d) column of Z and y.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models.chunks import Chunks, chunks, padded
from lmu_scaling.models.legendre import Impulse, impulse

# Frozen matrices, from float64 -------------------------------------------------------------------------------------


def state_matrix(system: Impulse, cut: Chunks) -> np.ndarray:
    """S [q, j, n]: the memory before step j·C is the sum of H[:, j·C − 1 − t] x[t] over t < j·C."""
    H_qn = system.response(cut.length)
    S_qjn = np.zeros((cut.q, cut.count, cut.length))
    for j in range(1, cut.count):
        S_qjn[:, j, : j * cut.steps] = H_qn[:, : j * cut.steps][:, ::-1]
    return S_qjn


def weight_basis(system: Impulse, cut: Chunks) -> np.ndarray:
    """G [q + 1, c, z]: W = [L, b]·G. A step sees the chunk's inputs through H, the state through Ā^(c+1)."""
    q, steps, H_qn = cut.q, cut.steps, system.response(cut.steps)
    G = np.zeros((q + 1, steps, cut.rows))
    power_qq = np.eye(q)
    for c in range(steps):
        power_qq = power_qq @ system.A_qq
        G[:q, c, : c + 1] = H_qn[:, c::-1]
        G[:q, c, steps : steps + q] = power_qq
    G[q, :, steps + q] = 1
    return G


@lru_cache(maxsize=32)
def frozen(q: int, theta: float, cut: Chunks, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """S [(q, j), n] in the dtype of the products, and G [q + 1, (c, z)] in float32 or float64."""
    system = impulse(q, theta)
    wide = torch.promote_types(dtype, torch.float32)
    with torch.inference_mode(False):  # made while evaluating, they must serve training as well
        S = torch.from_numpy(state_matrix(system, cut)).to(device=device, dtype=dtype).flatten(0, 1)
        G = torch.from_numpy(weight_basis(system, cut)).to(device=device, dtype=wide).flatten(1)
    return S, G


@lru_cache(maxsize=8)
def carrying(
    q: int, theta: float, cut: Chunks, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """What a segment's start does to its chunks (Ā^(jC)) and to its end (Ā^n), and what its inputs do to its end."""
    system, wide = impulse(q, theta), torch.promote_types(dtype, torch.float32)
    powers = [np.linalg.matrix_power(system.A_qq, j * cut.steps) for j in range(cut.count)]
    arrays = (np.stack(powers, axis=1).reshape(-1, q), np.linalg.matrix_power(system.A_qq, cut.n))
    with torch.inference_mode(False):
        to_chunks, to_end = (torch.from_numpy(array).to(device) for array in arrays)
        inputs = torch.from_numpy(np.ascontiguousarray(system.response(cut.n)[:, ::-1])).to(device)
    return to_chunks.to(dtype), to_end.to(wide), inputs.to(wide)


def segment_starts(x_bsnd: Tensor, q: int, k: int, theta: float) -> Tensor:
    """The memory [(b, s), q, d] at the start of every segment, in x's dtype."""
    b, s, n, d = x_bsnd.shape
    _, to_end_qq, inputs_qn = carrying(q, theta, chunks(n, q, k), x_bsnd.dtype, x_bsnd.device)
    ends_bsqd = inputs_qn @ x_bsnd
    starts = [x_bsnd.new_zeros(b, q, d)]
    for i in range(s - 1):
        starts.append(to_end_qq @ starts[-1] + ends_bsqd[:, i])
    return torch.stack(starts, dim=1).flatten(0, 1)


# Products ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreActivations:
    """y [(c, k), (j, b, d)], and what its axes mean."""

    y_ro: Tensor
    cut: Chunks
    batch: int
    d: int
    """Channels; y has `padded(d)` of them, the others are zero."""

    def tokens(self) -> Tensor:
        """y [b, n, k, d], as a view."""
        y_ckjbd = self.y_ro.view(self.cut.steps, -1, self.cut.count, self.batch, padded(self.d))
        return y_ckjbd.permute(3, 2, 0, 1, 4).flatten(1, 2)[:, : self.cut.n, :, : self.d]


def pre_activations(
    x_bnd: Tensor,
    L_kq: Tensor,
    bias_k: Tensor,
    theta: float,
    dtype: torch.dtype | None = None,
    start_bqd: Tensor | None = None,
) -> PreActivations:
    """y for every token. L and the bias are float32 or float64; the large products run in `dtype` (default: x's).

    `start_bqd`: the memory before the first step, if it is not zero.
    """
    (b, n, d), (k, q) = x_bnd.shape, L_kq.shape
    dtype = dtype or x_bnd.dtype
    cut = chunks(n, q, k)
    S, G = frozen(q, theta, cut, dtype, x_bnd.device)
    W_kcz = (torch.cat([L_kq, bias_k[:, None]], dim=1) @ G).view(k, cut.steps, cut.rows)
    W_rz = W_kcz.transpose(0, 1).reshape(cut.steps * k, cut.rows)
    to_chunks = None if start_bqd is None else carrying(q, theta, cut, dtype, x_bnd.device)[0]
    return PreActivations(_Products.apply(x_bnd, start_bqd, W_rz, S, to_chunks, cut, dtype), cut, b, d)


class _Products(torch.autograd.Function):
    """y = W Z(x, start), with the gradients by hand; sums over tokens are float32 or wider."""

    @staticmethod
    def forward(
        ctx: Any,
        x_bnd: Tensor,
        start_bqd: Tensor | None,
        W_rz: Tensor,
        S: Tensor,
        to_chunks: Tensor | None,
        cut: Chunks,
        dtype: torch.dtype,
    ) -> Tensor:
        Z_zo, W_rz = _inputs(x_bnd, start_bqd, S, to_chunks, cut, dtype), W_rz.to(dtype)
        ctx.save_for_backward(Z_zo, W_rz, S, to_chunks)
        ctx.cut, ctx.shape = cut, x_bnd.shape
        return W_rz @ Z_zo

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (dy_ro,) = grads
        Z_zo, W_rz, S, to_chunks = ctx.saved_tensors
        cut, (b, n, d) = ctx.cut, ctx.shape
        dW_rz = wide_product(dy_ro, Z_zo.T)
        dZ_zo = W_rz.T @ dy_ro
        dstates = dZ_zo[cut.steps : cut.steps + cut.q].view(cut.q * cut.count, -1)
        dx_nbd = wide_product(S.T, dstates).view(cut.count, cut.steps, b, padded(d))
        dx_nbd += dZ_zo[: cut.steps].view(cut.steps, cut.count, b, padded(d)).transpose(0, 1)
        dstart_bqd = None
        if to_chunks is not None:
            dstart_bqd = wide_product(to_chunks.T, dstates).view(cut.q, b, padded(d))[..., :d].transpose(0, 1)
        return dx_nbd.flatten(0, 1)[:n, :, :d].transpose(0, 1), dstart_bqd, dW_rz, None, None, None, None


def _inputs(
    x_bnd: Tensor, start_bqd: Tensor | None, S: Tensor, to_chunks: Tensor | None, cut: Chunks, dtype: torch.dtype
) -> Tensor:
    """Z [z, (j, b, d)]; padded channels are zero in every row, so that they add nothing to any product."""
    b, n, d = x_bnd.shape
    width = padded(d)
    x_nbd = torch.empty(cut.length, b, width, dtype=dtype, device=x_bnd.device)
    x_nbd[:n, :, :d] = x_bnd.transpose(0, 1)
    x_nbd[n:].zero_()
    x_nbd[..., d:].zero_()
    Z = x_nbd.new_empty(cut.rows, cut.count, b, width)
    Z[: cut.steps] = x_nbd.view(cut.count, cut.steps, b, width).transpose(0, 1)
    states = Z[cut.steps : cut.steps + cut.q].view(cut.q * cut.count, -1)
    torch.mm(S, x_nbd.view(cut.length, -1), out=states)
    if start_bqd is not None and to_chunks is not None:
        start_qbd = F.pad(start_bqd.to(dtype), (0, width - d)).transpose(0, 1).reshape(cut.q, -1)
        states.addmm_(to_chunks, start_qbd)
    Z[cut.steps + cut.q :].zero_()
    Z[cut.steps + cut.q, ..., :d].fill_(1)
    return Z.view(cut.rows, -1)


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b with a result in float32 or wider; sums are as wide in any case."""
    if a.dtype not in (torch.bfloat16, torch.float16):
        return a @ b
    if a.device.type == "cpu":
        return a.float() @ b.float()
    return torch.mm(a, b, out_dtype=torch.float32)
