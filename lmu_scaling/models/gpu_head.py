"""The head's loss on a GPU: a Triton kernel that proves itself (`triton_head.py`), or torch in chunks of tokens.

Both give ln Σ exp(logits) of every token and the gradients of its mean. Neither makes the host wait for the GPU.

Axes: t tokens, c tokens of a chunk, v classes, d width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models.verification import BOUNDS, Comparison, proven

CHUNK = 512  # tokens whose logits exist at once, twice in float32: what the memory model reserves (counting.py)
OPERATIONS = torch.library.Library("lmu_scaling", "FRAGMENT")
OPERATIONS.define("head(Tensor h, Tensor weight) -> (Tensor, Tensor, Tensor)")


def log_sums(h_td: Tensor, weight_vd: Tensor, triton: bool) -> tuple[Tensor, Tensor, Tensor]:
    """ln Σ exp(h · weightᵀ) of each token, and the gradients of its mean to h and to the weights."""
    d = h_td.shape[1]
    if triton and kernel_is_right(d, h_td.dtype, h_td.device):
        h_td, weight_vd = (F.pad(part, (0, -d % 8)).contiguous() for part in (h_td, weight_vd))
        log_sum_t, dh_td, dweight_vd = torch.ops.lmu_scaling.head(h_td, weight_vd)
        return log_sum_t, dh_td[:, :d], dweight_vd[:, :d]
    return chunked(h_td, weight_vd)


def chunked(h_td: Tensor, weight_vd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In torch: the logits of one chunk exist at a time."""
    total, wide = len(h_td), torch.promote_types(h_td.dtype, torch.float32)
    dh_td = torch.empty_like(h_td, dtype=wide)
    dweight_vd = torch.zeros_like(weight_vd, dtype=wide)
    log_sum_t = torch.empty(total, dtype=wide, device=h_td.device)
    for start in range(0, total, CHUNK):
        chunk = slice(start, start + CHUNK)
        h_cd = h_td[chunk]
        logits_cv = (h_cd @ weight_vd.T).to(wide)
        log_sum_t[chunk] = torch.logsumexp(logits_cv, dim=1)
        share_cv = logits_cv.sub_(log_sum_t[chunk, None]).exp_().to(h_td.dtype)
        dh_td[chunk] = share_cv @ weight_vd
        dweight_vd += share_cv.T @ h_cd
    return log_sum_t, dh_td.div_(total), dweight_vd.div_(total)


@torch.library.impl(OPERATIONS, "head", "CUDA")
def _head(h_td: Tensor, weight_vd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from lmu_scaling.models import triton_head

    return triton_head.head(h_td, weight_vd)


@torch.library.impl(OPERATIONS, "head", "Meta")
def _head_shape(h_td: Tensor, weight_vd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dh_td, dweight_vd = (torch.empty_like(part, dtype=torch.float32) for part in (h_td, weight_vd))
    return torch.empty(len(h_td), device="meta"), dh_td, dweight_vd


# Proof at first use ----------------------------------------------------------------------------------------------


def kernel_is_right(d: int, dtype: torch.dtype, device: torch.device) -> bool:
    return dtype in BOUNDS and proven("the head's loss", (d, dtype), device, lambda: compare(d, dtype, device))


def compare(d: int, dtype: torch.dtype, device: torch.device) -> list[Comparison]:
    """The kernel and float64 on more than one block of tokens and of classes, neither of them full."""
    width, total, classes = d + -d % 8, 83, 301
    wave = torch.sin(torch.arange((total + classes) * width, dtype=torch.float64, device=device) * 1.3).to(dtype)
    h_td, weight_vd = wave.view(-1, width).split((total, classes))
    h_td = h_td * width**-0.5  # logits of a trained model's size
    found = torch.ops.lmu_scaling.head(h_td.contiguous(), weight_vd.contiguous())
    wanted = chunked(h_td.double(), weight_vd.double())
    return [Comparison(*row) for row in zip(("log sum", "dh", "dweight"), found, wanted, strict=True)]
