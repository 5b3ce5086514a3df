"""Causal softmax attention over a whole sequence: a C kernel for narrow heads on a CPU, torch's own otherwise.

Torch's kernel is made for wide heads: at d = 16 (two heads of 8) and n = 512 it took two thirds of a training step.

Axes: b batch, n position, h head, e channel of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models.forms import attention_form
from lmu_scaling.models.native import INT, LONG, POINTER, Kernel, threads
from lmu_scaling.models.rotary import angles, rotate

C_SOURCES = ("kernels/causal_attention.c",)

_forward = Kernel("lmu_causal", [POINTER] * 8 + [LONG] * 2 + [INT] * 3)
_backward = Kernel("lmu_causal_back", [POINTER] * 12 + [LONG] * 2 + [INT] * 3)


def causal_attention(Q_bnhe: Tensor, K_bnhe: Tensor, V_bnhe: Tensor, rotary: bool, compiled: bool) -> Tensor:
    """softmax(QKᵀ/√e)·V [b, n, h, e], at least in float32 on a CPU. `rotary`: turn queries and keys by position."""
    if Q_bnhe.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return causal_attention(Q_bnhe.float(), K_bnhe.float(), V_bnhe.float(), rotary, compiled)
    if attention_form(Q_bnhe.device.type, Q_bnhe.dtype, compiled) == "native":
        return _CausalAttention.apply(Q_bnhe, K_bnhe, V_bnhe, rotary)
    Q_bhne, K_bhne, V_bhne = (part.transpose(1, 2) for part in (Q_bnhe, K_bnhe, V_bnhe))
    if rotary:
        Q_bhne, K_bhne = rotate(Q_bhne), rotate(K_bhne)
    return F.scaled_dot_product_attention(Q_bhne, K_bhne, V_bhne, is_causal=True).transpose(1, 2)


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Q_bnhe: Tensor, K_bnhe: Tensor, V_bnhe: Tensor, rotary: bool) -> Tensor:
        inputs = _rows(Q_bnhe, K_bnhe, V_bnhe)
        b, n, h, e = Q_bnhe.shape
        out_bnhe, sums_bhn = Q_bnhe.new_empty(b, n, h, e), Q_bnhe.new_empty(b, h, n)
        addresses, strides = _addresses(inputs)
        _forward(*addresses, strides, *_turns(rotary, n, e), out_bnhe, sums_bhn, b, n, h, e, threads())
        ctx.save_for_backward(*inputs, out_bnhe, sums_bhn)
        ctx.rotary = rotary
        return out_bnhe

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        *inputs, out_bnhe, sums_bhn = ctx.saved_tensors
        b, n, h, e = out_bnhe.shape
        dQ_bnhe, dK_bnhe, dV_bnhe = (torch.empty_like(out_bnhe) for _ in inputs)
        addresses, strides = _addresses([*inputs, *_rows(grads[0])])
        turns = _turns(ctx.rotary, n, e)
        made = (dQ_bnhe, dK_bnhe, dV_bnhe)
        _backward(*addresses, strides, *turns, out_bnhe, sums_bhn, *made, b, n, h, e, threads())
        return dQ_bnhe, dK_bnhe, dV_bnhe, None


def _rows(*tensors: Tensor) -> list[Tensor]:
    """The kernel reads any strides, but contiguous channels."""
    return [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]


def _addresses(tensors: list[Tensor]) -> tuple[list[int], Any]:
    strides = [tensor.stride(axis) for tensor in tensors for axis in (0, 1, 2)]
    return [tensor.data_ptr() for tensor in tensors], (LONG * len(strides))(*strides)


def _turns(rotary: bool, n: int, e: int) -> tuple[Tensor, Tensor] | tuple[None, None]:
    return angles(0, n, e, torch.device("cpu")) if rotary else (None, None)
