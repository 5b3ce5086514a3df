"""ln Σ exp(h·Wᵀ) of every token and the gradients of its mean, as two Triton kernels that write no logits.

The gradient to h is softmax(hWᵀ)·W: attention with the tokens as queries and the classes as keys and values, so that
one pass with a running maximum gives the sum and the gradient. The second kernel computes the logits again for the
gradient to W. That is four products instead of three, and no traffic for 50,257 logits per token.

A tile's side must be a power of two, the width need not be one: operands are read in two parts (48 = 32 + 16).
Operands of products have h's dtype, sums are float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmu_scaling.models.chunks import parts

SIZES = ("total", "classes")  # no kernel of their own for special values
BLOCK = 64  # tokens and classes of a tile


@triton.jit
def _rows(matrix, row, live, column, D: tl.constexpr):
    place = row.to(tl.int64)[:, None] * D + column[None, :]
    return tl.load(matrix + place, live[:, None] & (column < D)[None, :], 0.0)


@triton.jit(do_not_specialize=SIZES)
def head_kernel(
    h, weight, log_sum, dh, total, classes,
    D: tl.constexpr, DA: tl.constexpr, DB: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum and dh of a block of tokens: all classes pass by, the sums are rescaled when a larger logit appears."""
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.arange(0, DA), DA + tl.arange(0, DB)
    ha, hb = _rows(h, t, t < total, a, D), _rows(h, t, t < total, b, D)
    top = tl.full((BLOCK,), -1e30, tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    da, db = tl.zeros((BLOCK, DA), tl.float32), tl.zeros((BLOCK, DB), tl.float32)
    for first in range(0, classes, BLOCK):
        v = first + tl.arange(0, BLOCK)
        wa, wb = _rows(weight, v, v < classes, a, D), _rows(weight, v, v < classes, b, D)
        logits = tl.dot(ha, tl.trans(wa), input_precision="ieee")
        logits = tl.dot(hb, tl.trans(wb), logits, input_precision="ieee")
        logits = tl.where((v < classes)[None, :], logits, float("-inf"))
        above = tl.maximum(top, tl.max(logits, 1))
        kept = tl.exp(top - above)
        raised = tl.exp(logits - above[:, None])
        sums = sums * kept + tl.sum(raised, 1)
        share = raised.to(h.dtype.element_ty)
        da = tl.dot(share, wa, da * kept[:, None], input_precision="ieee")
        db = tl.dot(share, wb, db * kept[:, None], input_precision="ieee")
        top = above
    tl.store(log_sum + t, top + tl.log(sums), t < total)
    scale = (1.0 / (sums * total))[:, None]
    place = t.to(tl.int64)[:, None] * D
    tl.store(dh + place + a[None, :], da * scale, (t < total)[:, None] & (a < D)[None, :])
    tl.store(dh + place + b[None, :], db * scale, (t < total)[:, None] & (b < D)[None, :])


@triton.jit(do_not_specialize=SIZES)
def head_back_kernel(
    h, weight, log_sum, dweight, total, classes,
    D: tl.constexpr, DA: tl.constexpr, DB: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of classes: all tokens pass by."""
    v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.arange(0, DA), DA + tl.arange(0, DB)
    wa, wb = _rows(weight, v, v < classes, a, D), _rows(weight, v, v < classes, b, D)
    da, db = tl.zeros((BLOCK, DA), tl.float32), tl.zeros((BLOCK, DB), tl.float32)
    for first in range(0, total, BLOCK):
        t = first + tl.arange(0, BLOCK)
        ha, hb = _rows(h, t, t < total, a, D), _rows(h, t, t < total, b, D)
        logits = tl.dot(wa, tl.trans(ha), input_precision="ieee")
        logits = tl.dot(wb, tl.trans(hb), logits, input_precision="ieee")
        share = tl.exp(logits - tl.load(log_sum + t, t < total, float("inf"))[None, :]).to(h.dtype.element_ty)
        da = tl.dot(share, ha, da, input_precision="ieee")
        db = tl.dot(share, hb, db, input_precision="ieee")
    place = v.to(tl.int64)[:, None] * D
    tl.store(dweight + place + a[None, :], da / total, (v < classes)[:, None] & (a < D)[None, :])
    tl.store(dweight + place + b[None, :], db / total, (v < classes)[:, None] & (b < D)[None, :])


def tiles(width: int) -> dict[str, int]:
    """Constants of the kernels for one width, a multiple of 8."""
    first, second = parts(width)
    warps = 4 if first + second <= 128 else 8
    return {"D": width, "DA": first, "DB": second, "BLOCK": BLOCK, "num_warps": warps, "num_stages": 2}


def head(h_td: Tensor, weight_vd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """ln Σ exp(logits) of each token, and the gradients of its mean to h and to the weights, all float32."""
    (total, width), classes = h_td.shape, len(weight_vd)
    assert h_td.is_contiguous() and weight_vd.is_contiguous() and width % 8 == 0
    log_sum_t = torch.empty(total, dtype=torch.float32, device=h_td.device)
    dh_td, dweight_vd = (torch.empty_like(part, dtype=torch.float32) for part in (h_td, weight_vd))
    constants = tiles(width)
    by_token, by_class = (-(-total // BLOCK),), (-(-classes // BLOCK),)
    head_kernel[by_token](h_td, weight_vd, log_sum_t, dh_td, total, classes, **constants)
    head_back_kernel[by_class](h_td, weight_vd, log_sum_t, dweight_vd, total, classes, **constants)
    return log_sum_t, dh_td, dweight_vd
