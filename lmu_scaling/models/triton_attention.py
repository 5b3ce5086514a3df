"""Implicit self-attention (eqs. 9 and 10) as one Triton kernel forwards and one backwards. Imports Triton.

A program handles T tokens at once: the rows (token, i) of their Q, K and V fill a tile of R = 64 rows, and the scores
of different tokens are masked. Channels are read in blocks: nothing but y, m and their gradients touches memory.
y comes from `lmu_products`: rows (step c of a chunk, Q/K/V, i), columns (chunk j, sequence b, channel); a program's
tokens have the same c, so that their columns are adjacent. Operands of products have y's dtype, sums are float32.

Backwards, with A = softmax(s·QKᵀ), w = pA and dw = V dm: mean = A dw, dS = s·p·A(dw − mean), dp = Σ mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

TOKENS = 16  # a program's tokens at most: the smallest side of a tensor core's product
ROWS = 64
CHANNELS = 16
SIZES = ("n", "batch", "steps", "columns")  # no kernel of their own for special values


@triton.jit
def _gelu(y):
    return 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))


@triton.jit
def _gelu_slope(y):
    return 0.5 * (1.0 + tl.erf(y * 0.7071067811865476)) + y * 0.3989422804014327 * tl.exp(-0.5 * y * y)


@triton.jit
def _places(group, c, columns, stride, DP: tl.constexpr, QR: tl.constexpr, T: tl.constexpr, R: tl.constexpr):
    """Of each row of the tile: its token within the group, whether it exists, and where its Q begins in y."""
    r = tl.arange(0, R)
    token = r // QR
    column = group * T + token
    live = (token < T) & (column < columns)
    start = (c * 3 * QR + r % QR).to(tl.int64) * stride + column.to(tl.int64) * DP
    return token, column, live, start


@triton.jit
def _tile(y, start, live, channel, DP: tl.constexpr):
    """Rows of y at these channels, in float32; zeros where there is nothing."""
    there = live[:, None] & (channel < DP)[None, :]
    return tl.load(y + start[:, None] + channel[None, :], there, 0.0).to(tl.float32)


@triton.jit
def _softmax(S, token, live, scale):
    same = (token[:, None] == token[None, :]) & live[:, None] & live[None, :]
    S = tl.where(same, S * scale, -1e30)
    A = tl.where(same, tl.exp(S - tl.max(S, 1)[:, None]), 0.0)
    return A / tl.maximum(tl.sum(A, 1), 1e-30)[:, None]


@triton.jit(do_not_specialize=SIZES)
def attend_kernel(
    y, p, m, n, batch, steps, columns, scale,
    D: tl.constexpr, DP: tl.constexpr, QR: tl.constexpr, T: tl.constexpr,
    R: tl.constexpr, TP: tl.constexpr, DB: tl.constexpr,
):  # fmt: skip
    """Write m for T tokens."""
    group, c = tl.program_id(0), tl.program_id(1)
    stride = columns * DP
    token, _, live, start = _places(group, c, columns, stride, DP, QR, T, R)
    part = stride.to(tl.int64) * QR
    S = tl.zeros((R, R), tl.float32)
    for first in range(0, DP, DB):
        channel = first + tl.arange(0, DB)
        Q = _gelu(_tile(y, start, live, channel, DP)).to(y.dtype.element_ty)
        K = _gelu(_tile(y, start + part, live, channel, DP)).to(y.dtype.element_ty)
        S = tl.dot(Q, tl.trans(K), S, input_precision="ieee")
    A = _softmax(S, token, live, scale)
    w = tl.sum(A * tl.load(p + tl.arange(0, R) % QR, live, 0.0)[:, None], 0)
    t = tl.arange(0, TP)
    pick = tl.where(t[:, None] == token[None, :], w[None, :], 0.0).to(y.dtype.element_ty)
    place = group * T + t
    time = (place // batch) * steps + c
    good = (t < T) & (place < columns) & (time < n)
    out = ((place % batch).to(tl.int64) * n + time) * D
    for first in range(0, DP, DB):
        channel = first + tl.arange(0, DB)
        V = _gelu(_tile(y, start + 2 * part, live, channel, DP)).to(y.dtype.element_ty)
        value = tl.dot(pick, V, input_precision="ieee")
        tl.store(m + out[:, None] + channel[None, :], value, good[:, None] & (channel < D)[None, :])


@triton.jit(do_not_specialize=SIZES)
def attend_back_kernel(
    y, p, dm, dy, dp, n, batch, steps, columns, scale,
    D: tl.constexpr, DP: tl.constexpr, QR: tl.constexpr, T: tl.constexpr,
    R: tl.constexpr, TP: tl.constexpr, DB: tl.constexpr,
):  # fmt: skip
    """Write dy for T tokens, and each row's part of dp."""
    group, c = tl.program_id(0), tl.program_id(1)
    stride = columns * DP
    token, column, live, start = _places(group, c, columns, stride, DP, QR, T, R)
    part = stride.to(tl.int64) * QR
    time = (column // batch) * steps + c
    real = live & (time < n)  # padded time has no gradient
    above = ((column % batch).to(tl.int64) * n + time) * D
    S = tl.zeros((R, R), tl.float32)
    dw = tl.zeros((R,), tl.float32)
    for first in range(0, DP, DB):
        channel = first + tl.arange(0, DB)
        Q = _gelu(_tile(y, start, live, channel, DP)).to(y.dtype.element_ty)
        K = _gelu(_tile(y, start + part, live, channel, DP)).to(y.dtype.element_ty)
        S = tl.dot(Q, tl.trans(K), S, input_precision="ieee")
        dw += tl.sum(_gelu(_tile(y, start + 2 * part, live, channel, DP)) * _tile(dm, above, real, channel, D), 1)
    A = _softmax(S, token, live, scale)
    p_i = tl.load(p + tl.arange(0, R) % QR, live, 0.0)
    w = tl.sum(A * p_i[:, None], 0)
    mean = tl.sum(A * dw[None, :], 1)
    program = group.to(tl.int64) * tl.num_programs(1) + c
    tl.store(dp + program * R + tl.arange(0, R), mean)
    dS = (A * (scale * p_i)[:, None] * (dw[None, :] - mean[:, None])).to(y.dtype.element_ty)
    for first in range(0, DP, DB):
        channel = first + tl.arange(0, DB)
        there = live[:, None] & (channel < DP)[None, :]
        to = dy + start[:, None] + channel[None, :]
        Q = _tile(y, start, live, channel, DP)
        K = _tile(y, start + part, live, channel, DP)
        dQ = tl.dot(dS, _gelu(K).to(y.dtype.element_ty), input_precision="ieee") * _gelu_slope(Q)
        tl.store(to, dQ, there)
        dK = tl.dot(tl.trans(dS), _gelu(Q).to(y.dtype.element_ty), input_precision="ieee") * _gelu_slope(K)
        tl.store(to + part, dK, there)
        V = _tile(y, start + 2 * part, live, channel, DP)
        tl.store(to + 2 * part, w[:, None] * _tile(dm, above, real, channel, D) * _gelu_slope(V), there)


@dataclass(frozen=True)
class Tiles:
    """Constants of the kernels for one width and reduced order."""

    D: int
    DP: int
    QR: int
    T: int
    R: int
    TP: int
    DB: int
    num_warps: int
    num_stages: int

    def asdict(self) -> dict[str, int]:
        return dict(vars(self))


def fits(q_reduced: int) -> bool:
    """A token's rows must fit a tile."""
    return q_reduced <= ROWS


def tiles(d: int, width: int, q_reduced: int) -> Tiles:
    """`width`: channels of y, a multiple of 8. Blocks of 16 channels are one sector of memory and spill no register."""
    tokens = max(1, min(TOKENS, ROWS // q_reduced))
    rows = max(16, triton.next_power_of_2(tokens * q_reduced))
    return Tiles(d, width, q_reduced, tokens, rows, TOKENS, CHANNELS, num_warps=4, num_stages=3)


def attend(y_ro: Tensor, p_i: Tensor, m_bnd: Tensor, steps: int, scale: float) -> None:
    """Write m [b, n, d] from y [(c, k), (j, b, d)], both on the same device."""
    constants, arguments, grid = _launch(y_ro, p_i, m_bnd, steps)
    attend_kernel[grid](y_ro, p_i, m_bnd, *arguments, scale, **constants.asdict())


def attend_back(y_ro: Tensor, p_i: Tensor, dm_bnd: Tensor, dy_ro: Tensor, steps: int, scale: float) -> Tensor:
    """Write dy; returns dp."""
    constants, arguments, grid = _launch(y_ro, p_i, dm_bnd, steps)
    parts = torch.empty(grid[0] * grid[1], constants.R, dtype=torch.float32, device=y_ro.device)
    attend_back_kernel[grid](y_ro, p_i, dm_bnd, dy_ro, parts, *arguments, scale, **constants.asdict())
    return parts.sum(0)[: constants.T * constants.QR].view(constants.T, constants.QR).sum(0)


def _launch(
    y_ro: Tensor, p_i: Tensor, m_bnd: Tensor, steps: int
) -> tuple[Tiles, tuple[int, int, int, int], tuple[int, int]]:
    b, n, d = m_bnd.shape
    width = -(-d // 8) * 8
    columns = y_ro.shape[1] // width
    assert all(part.is_contiguous() for part in (y_ro, p_i, m_bnd))
    assert y_ro.shape == (steps * 3 * len(p_i), columns * width)
    constants = tiles(d, width, len(p_i))
    return constants, (n, b, steps, columns), (-(-columns // constants.T), steps)
