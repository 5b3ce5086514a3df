"""The LSTM over whole sequences by a C kernel on a CPU: torch's own takes half of a training step.

The input's share of all gates is one large product, in bfloat16 under autocast; the recurrence is float32 in C.

Axes: b batch, n position, d channel, g = 4d gates (input, forget, cell, output).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lmu_scaling.models.forms import product_dtype
from lmu_scaling.models.native import INT, LONG, POINTER, Kernel, threads

C_SOURCES = ("kernels/lstm.c",)

_forward = Kernel("lmu_lstm", [POINTER] * 4 + [LONG] * 2 + [INT] * 2)
_backward = Kernel("lmu_lstm_back", [POINTER] * 4 + [LONG] * 2 + [INT] * 2)


def lstm(x_bnd: Tensor, W_gd: Tensor, U_gd: Tensor, bias_g: Tensor) -> Tensor:
    """h [b, n, d] from zero states, in float32."""
    return _LSTM.apply(x_bnd, W_gd, U_gd, bias_g, product_dtype(x_bnd))


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a·b with operands of a dtype, as float32."""
    return (a.to(dtype) @ b.to(dtype)).float()


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_bnd: Tensor, W_gd: Tensor, U_gd: Tensor, bias_g: Tensor, dtype: torch.dtype) -> Tensor:
        b, n, d = x_bnd.shape
        with torch.autocast("cpu", enabled=False):
            gates_bng = product(x_bnd, W_gd.T, dtype).add_(bias_g)
        cell_bnd, h_bnd = gates_bng.new_empty(b, n, d), gates_bng.new_empty(b, n, d)
        recurrent = U_gd.contiguous()
        _forward(recurrent, gates_bng, cell_bnd, h_bnd, b, n, d, threads())
        ctx.save_for_backward(x_bnd, W_gd, recurrent, gates_bng, cell_bnd, h_bnd)
        ctx.dtype = dtype
        return h_bnd

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        x_bnd, W_gd, U_gd, gates_bng, cell_bnd, h_bnd = ctx.saved_tensors
        b, n, d = h_bnd.shape
        dgates_bng = gates_bng.clone()
        _backward(U_gd, dgates_bng, cell_bnd, grads[0].float().contiguous(), b, n, d, threads())
        with torch.autocast("cpu", enabled=False):
            dx_bnd = product(dgates_bng, W_gd, ctx.dtype)
            rows_go = dgates_bng.flatten(0, 1).T
            dW_gd = product(rows_go, x_bnd.flatten(0, 1), ctx.dtype)
            later_go = dgates_bng[:, 1:].flatten(0, 1).T  # U multiplies the state before
            dU_gd = product(later_go, h_bnd[:, :-1].flatten(0, 1), ctx.dtype)
            return dx_bnd.to(x_bnd.dtype), dW_gd, dU_gd, dgates_bng.sum(dim=(0, 1)), None
