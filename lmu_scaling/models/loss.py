"""Cross-entropy of a linear head without holding the logits.

At 50,257 classes and d = 48 the head takes most of a step's time and memory. Logits exist for one chunk of tokens at a
time, and the gradient is computed in the forward pass, while they exist: by a compiled kernel in float32 or bfloat16 on
a CPU (kernels/head.c), in torch tiles otherwise; on GPUs see `gpu_head.py`. `forms.py` says which form runs where.

Axes: t tokens, c tokens of a chunk, v classes, k classes of a tile, d width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models import gpu_head, native
from lmu_scaling.models.forms import head_form, product_dtype, rounds_only
from lmu_scaling.models.native import INT, LONG, POINTER, Kernel, threads

C_SOURCES = (
    "kernels/head.c",
    "kernels/head.h",
    "kernels/head512.c",
    "kernels/head512.h",
    "kernels/head_portable.c",
)
TOKENS = 256  # tokens per chunk: the buffer holds at most TOKENS × V numbers
CLASSES = 4096  # classes per tile: a tile of TOKENS × CLASSES float32 is 4 MB and stays in cache
PROBE = 1024  # classes whose largest logit serves as the shift of the exponentials
SAFE = 1e30  # a sum of exponentials above this is computed again with the exact shift

_head_kernel = Kernel("lmu_head", [POINTER] * 6 + [LONG] * 2 + [INT] * 4)


def linear_cross_entropy(h_td: Tensor, weight_vd: Tensor, targets_t: Tensor, compiled: bool = True) -> Tensor:
    """Mean of -log softmax(h · weightᵀ)[target], in nats; equals `F.cross_entropy` on the full logits.

    `compiled` allows kernels that are compiled for this machine, where they are the faster form (`forms.py`).
    """
    return _LinearCrossEntropy.apply(h_td, weight_vd, targets_t, compiled)


@torch.no_grad()
def token_losses(
    h_td: Tensor, weight_vd: Tensor, targets_t: Tensor, compiled: bool = True, tokens: int | None = None
) -> Tensor:
    """The loss of every token in nats, without gradients, for evaluation. `tokens`: chunk size of the torch form."""
    h_td, weight_vd = _operands(h_td, weight_vd, compiled)
    tokens = tokens or (TOKENS if h_td.device.type == "cpu" else gpu_head.CHUNK)
    if _form(h_td, compiled) == "native":
        return _head(h_td, weight_vd, gradients=False)[0] - _target_logits(h_td, weight_vd, targets_t)
    losses_t = torch.empty(len(h_td), dtype=_accumulator(h_td.dtype), device=h_td.device)
    for chunk in _chunks(len(h_td), tokens):
        h_cd = h_td[chunk]
        logits_cv = (h_cd @ weight_vd.T).to(losses_t.dtype)
        losses_t[chunk] = torch.logsumexp(logits_cv, dim=1) - _target_logits(h_cd, weight_vd, targets_t[chunk])
    return losses_t


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h_td: Tensor, weight_vd: Tensor, targets_t: Tensor, compiled: bool) -> Tensor:
        if not any(ctx.needs_input_grad):
            return token_losses(h_td, weight_vd, targets_t, compiled).mean()
        loss, dh_td, dweight_vd = _with_gradients(*_operands(h_td, weight_vd, compiled), targets_t, compiled)
        ctx.save_for_backward(dh_td.to(h_td.dtype), dweight_vd.to(weight_vd.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        dh_td, dweight_vd = ctx.saved_tensors
        if grads[0].device.type == "cpu" and bool(grads[0] == 1):  # spares a pass over V × d numbers
            return dh_td, dweight_vd, None, None
        return dh_td * grads[0], dweight_vd * grads[0], None, None


def _with_gradients(
    h_td: Tensor, weight_vd: Tensor, targets_t: Tensor, compiled: bool
) -> tuple[Tensor, Tensor, Tensor]:
    form = _form(h_td, compiled)
    if form == "native":
        log_sum_t, dh_td, dweight_vd = _head(h_td, weight_vd, gradients=True)
    elif form == "tiles":
        log_sum_t, dh_td, dweight_vd = _denominator(h_td, weight_vd)
    else:
        log_sum_t, dh_td, dweight_vd = gpu_head.log_sums(h_td, weight_vd, form == "triton")
    # dh and dweight hold the softmax's part of the gradient; the targets' part is -1/total at one class per token
    total = len(h_td)
    dh_td.sub_(weight_vd[targets_t], alpha=1 / total)
    dweight_vd.index_add_(0, targets_t, h_td.to(dweight_vd.dtype), alpha=-1 / total)
    return (log_sum_t - _target_logits(h_td, weight_vd, targets_t)).mean(), dh_td, dweight_vd


def _form(h_td: Tensor, compiled: bool) -> str:
    return head_form(h_td.device.type, h_td.dtype, h_td.shape[1], compiled)


def _head(h_td: Tensor, weight_vd: Tensor, gradients: bool) -> tuple[Tensor, Tensor, Tensor]:
    """ln Σ exp(h · weightᵀ) of each token; with `gradients`, those of its mean to h and to the weights (else unset)."""
    (total, d), classes = h_td.shape, len(weight_vd)
    lanes = 16 if native.vectors() else 8
    h_tp, weight_vp = (_padded(part, -d % lanes) for part in (h_td, weight_vd))
    sum_t, shift_t, dh_tp = (torch.empty(shape, dtype=torch.float32) for shape in (total, total, h_tp.shape))
    dweight_vp = torch.empty(weight_vp.shape if gradients else (0, h_tp.shape[1]), dtype=torch.float32)
    tensors = (h_tp, weight_vp, sum_t, shift_t, dh_tp, dweight_vp if gradients else None)
    how = (h_tp.dtype == torch.bfloat16, not native.vectors(), threads())
    _head_kernel(*tensors, total, classes, h_tp.shape[1], *how)
    return sum_t.log() + shift_t, dh_tp[:, :d], dweight_vp[:, :d]


def _padded(x: Tensor, columns: int) -> Tensor:
    return F.pad(x, (0, columns)) if columns else x.contiguous()


def _denominator(h_td: Tensor, weight_vd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`_head` in torch, with gradients."""
    total, width = h_td.shape
    wide = _accumulator(h_td.dtype)
    dh_td = torch.zeros(total, width, dtype=wide, device=h_td.device)
    dweight_vd = torch.zeros(weight_vd.shape, dtype=wide, device=h_td.device)
    log_sum_t = torch.empty(total, dtype=wide, device=h_td.device)
    exp_vc = torch.empty(len(weight_vd), min(TOKENS, total), dtype=h_td.dtype, device=h_td.device)
    for chunk in _chunks(total, TOKENS):
        h_cd = h_td[chunk]
        tiles_vc = exp_vc if len(h_cd) == exp_vc.shape[1] else exp_vc.new_empty(len(weight_vd), len(h_cd))
        sum_c, shift_c = _exponentials(h_cd, weight_vd, tiles_vc, dh_td[chunk])
        log_sum_t[chunk] = sum_c.log() + shift_c
        scale_c1 = (1 / (sum_c * total))[:, None]
        dh_td[chunk] *= scale_c1
        _add_product(dweight_vd, tiles_vc, (h_cd * scale_c1).to(h_cd.dtype))
    return log_sum_t, dh_td, dweight_vd


def _exponentials(h_cd: Tensor, weight_vd: Tensor, exp_vc: Tensor, dh_cd: Tensor) -> tuple[Tensor, Tensor]:
    """Fill `exp_vc` with exp(logits - shift) and `dh_cd` with its product with the weights; return sum and shift.

    The shift need not be the largest logit, only large enough to keep the sum finite. If it is not, the second pass
    takes the largest.
    """
    h_dc = h_cd.T.contiguous()
    for probe in (PROBE, len(weight_vd)):
        shift_c = (weight_vd[:probe] @ h_dc).amax(0)
        sum_c = torch.zeros(len(h_cd), dtype=dh_cd.dtype, device=h_cd.device)
        dh_cd.zero_()
        for start in range(0, len(weight_vd), CLASSES):
            weight_kd = weight_vd[start : start + CLASSES]
            tile_kc = torch.mm(weight_kd, h_dc, out=exp_vc[start : start + CLASSES])
            wide_kc = tile_kc.to(sum_c.dtype).sub_(shift_c).exp_()  # in float32 the tile itself
            sum_c += wide_kc.sum(0)
            if wide_kc is not tile_kc:
                tile_kc.copy_(wide_kc)
            _add_product(dh_cd, tile_kc.T, weight_kd)
        if bool((sum_c < SAFE).all()):
            break
    return sum_c, shift_c.to(sum_c.dtype)


def _add_product(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out += a @ b, in place when the types agree."""
    if a.dtype == out.dtype:
        out.addmm_(a, b)
    else:
        out += a @ b


def _target_logits(h_cd: Tensor, weight_vd: Tensor, targets_c: Tensor) -> Tensor:
    wide = _accumulator(h_cd.dtype)
    return (h_cd.to(wide) * weight_vd[targets_c].to(wide)).sum(1)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _operands(h_td: Tensor, weight_vd: Tensor, compiled: bool) -> tuple[Tensor, Tensor]:
    """Under autocast the products run in its dtype; exponentials, sums and losses stay in float32."""
    dtype = product_dtype(h_td)
    h_td, weight_vd = h_td.detach().to(dtype), weight_vd.detach().to(dtype)
    if rounds_only(h_td.device.type, dtype, compiled):
        return h_td.float(), weight_vd.float()
    return h_td, weight_vd


def _chunks(total: int, tokens: int) -> Iterator[slice]:
    for start in range(0, total, tokens):
        yield slice(start, min(start + tokens, total))
