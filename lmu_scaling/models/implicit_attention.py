"""The Legendre memory with implicit self-attention, as one differentiable operation (eqs. 1–10, appendix A.1).

For each token, Q, K, V = gelu(L_i M + b_i) ∈ R^{q'×d} (Table 2's FLOPs prove that the inner axis is d), and
m = p·softmax(QKᵀ)·V. Because p is a row vector, m = w·V with w = p·softmax(QKᵀ) ∈ R^{q'}: M' is never formed.

* `NativeLMU`: compiled kernels, float32 on a CPU;
* `TorchLMU`: torch only, any dtype on a CPU, with a hand-written gradient;
* `plain_time`: torch with autograd, for small q' without a compiler;
* matrix products and a Triton kernel, for GPUs: `lmu_products.py`, `gpu_attention.py`.

`forms.py` says which form runs where. The gradient needs only x. The pre-activations y of Q, K and V are kept as well,
or recomputed (`keep=False`).

Axes: b batch, n time, d channel, k = 3q' rows of Q, K and V together, i row of Q, j row of K and V, f frequency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lmu_scaling.models import gpu_attention, lmu_kernels
from lmu_scaling.models.forms import lmu_form, product_dtype
from lmu_scaling.models.gpu_attention import attend_tokens
from lmu_scaling.models.legendre import (
    LegendreMemory,
    computing_dtype,
    convolve_fft,
    full_precision,
    transform_length,
)

BLOCK_BYTES = 2 << 20  # of the largest temporary of TorchLMU: fits a second-level cache


def attend_time(y_bkdn: Tensor, p_i: Tensor, scale: float = 1.0) -> Tensor:
    """m [b, d, n], time innermost: faster than many tiny products for small q', as sums vectorise over time."""
    Q_bidn, K_bjdn, V_bjdn = F.gelu(y_bkdn).chunk(3, dim=1)
    scores_bijn = torch.stack([(Q_bdn[:, None] * K_bjdn).sum(2) for Q_bdn in Q_bidn.unbind(1)], dim=1)
    A_bijn = torch.softmax(scale * scores_bijn, dim=2)
    w_bjn = (p_i[:, None, None] * A_bijn).sum(1)
    return (w_bjn[:, :, None] * V_bjdn).sum(1)


def lmu_attention(
    x_bnd: Tensor,
    memory: LegendreMemory,
    L_kq: Tensor,
    bias_k: Tensor,
    p_i: Tensor,
    scale: float,
    *,
    compiled: bool,
    keep: bool,
) -> Tensor:
    """m [b, n, d] by the fastest available form; `compiled` allows kernels that are compiled for this machine."""
    dtype = computing_dtype(x_bnd)
    form = lmu_form(x_bnd.device.type, dtype, len(p_i), compiled)
    products = product_dtype(x_bnd)
    with full_precision(x_bnd):
        x_bnd, L_kq, bias_k, p_i = (part.to(dtype) for part in (x_bnd, L_kq, bias_k, p_i))
        if form == "products":
            arguments = (x_bnd, L_kq, bias_k, p_i, memory.theta, scale, products, compiled)
            return _with_recomputation(gpu_attention.lmu_attention, keep, *arguments)
        filters_kn = memory.filters(x_bnd.shape[1], dtype, x_bnd.device, L_kq)
        if form == "time":
            return _with_recomputation(plain_time, keep, x_bnd, filters_kn, bias_k, p_i, scale)
        function = NativeLMU if form == "native" else TorchLMU
        return function.apply(x_bnd, filters_kn, bias_k, p_i, scale, keep)


def plain_tokens(x_bnd: Tensor, filters_kn: Tensor, bias_k: Tensor, p_i: Tensor, scale: float) -> Tensor:
    y_bkdn = convolve_fft(x_bnd.transpose(1, 2), filters_kn) + bias_k[:, None, None]
    return attend_tokens(y_bkdn.permute(0, 3, 1, 2).contiguous(), p_i, scale)


def plain_time(x_bnd: Tensor, filters_kn: Tensor, bias_k: Tensor, p_i: Tensor, scale: float) -> Tensor:
    y_bkdn = convolve_fft(x_bnd.transpose(1, 2), filters_kn) + bias_k[:, None, None]
    return attend_time(y_bkdn, p_i, scale).transpose(1, 2)


def _with_recomputation(form: Callable[..., Tensor], keep: bool, *arguments: Any) -> Tensor:
    return form(*arguments) if keep else checkpoint(form, *arguments, use_reentrant=False)


class NativeLMU(torch.autograd.Function):
    """By the compiled kernels; all tensors are float32 on a CPU."""

    @staticmethod
    def forward(
        ctx: Any, x_bnd: Tensor, filters_kn: Tensor, bias_k: Tensor, p_i: Tensor, scale: float, keep: bool
    ) -> Tensor:
        x_bnd, filters_kn, bias_k, p_i = (part.contiguous() for part in (x_bnd, filters_kn, bias_k, p_i))
        convolution = lmu_kernels.Convolution(filters_kn, x_bnd.shape[2])
        m_bnd = torch.empty_like(x_bnd)
        at_once = convolution.sequences()  # their pre-activations stay in cache between the two kernels
        y = convolution.empty(len(x_bnd) if keep else at_once)
        for i in range(0, len(x_bnd), at_once):
            part = slice(i, i + at_once)
            y_part = y[part] if keep else y
            convolution.forward(x_bnd[part], y_part)
            lmu_kernels.attend(y_part, bias_k, p_i, scale, m_bnd[part])
        ctx.save_for_backward(x_bnd, filters_kn, bias_k, p_i, *([y] if keep else []))
        ctx.scale = scale
        return m_bnd

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dm_bnd = grads[0].contiguous()
        x_bnd, filters_kn, bias_k, p_i, *kept = ctx.saved_tensors
        convolution = lmu_kernels.Convolution(filters_kn, x_bnd.shape[2])
        dx_bnd = torch.empty_like(x_bnd)
        dbias_k, dp_i = torch.zeros_like(bias_k), torch.zeros_like(p_i)
        at_once = convolution.sequences()
        spare = convolution.empty(min(at_once, len(x_bnd)))
        for i in range(0, len(x_bnd), at_once):
            part = slice(i, i + at_once)
            dy = spare[: len(x_bnd[part])]
            if not kept:
                convolution.forward(x_bnd[part], dy)
            y = kept[0][part] if kept else dy
            more_bias, more_p = lmu_kernels.attend_back(y, bias_k, p_i, ctx.scale, dm_bnd[part], dy)
            dbias_k += more_bias
            dp_i += more_p
            convolution.backward(x_bnd[part], dy, dx_bnd[part])
        return dx_bnd, convolution.filter_gradient(), dbias_k, dp_i, None, None


class TorchLMU(torch.autograd.Function):
    """By torch, one sequence at a time: allocating large temporaries would cost more time than the sums."""

    @staticmethod
    def forward(
        ctx: Any, x_bnd: Tensor, filters_kn: Tensor, bias_k: Tensor, p_i: Tensor, scale: float, keep: bool
    ) -> Tensor:
        b, n, d = x_bnd.shape
        convolution = BlockConvolution(filters_kn, d)
        y_bnkd = x_bnd.new_empty(b if keep else 1, n, len(filters_kn), d)
        m_bnd = torch.empty_like(x_bnd, memory_format=torch.contiguous_format)
        for i in range(b):
            y_nkd = y_bnkd[i if keep else 0]
            convolution.forward(x_bnd[i], y_nkd)
            m_bnd[i] = attend_tokens(y_nkd + bias_k[:, None], p_i, scale)
        ctx.save_for_backward(x_bnd, filters_kn, bias_k, p_i, *([y_bnkd] if keep else []))
        ctx.scale = scale
        return m_bnd

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (dm_bnd,) = grads
        x_bnd, filters_kn, bias_k, p_i, *kept = ctx.saved_tensors
        b, n, d = x_bnd.shape
        convolution = BlockConvolution(filters_kn, d)
        dx_bnd = torch.empty_like(x_bnd, memory_format=torch.contiguous_format)
        dbias_k, dp_i = torch.zeros_like(bias_k), torch.zeros_like(p_i)
        buffer_nkd = x_bnd.new_empty(n, len(filters_kn), d)
        for i in range(b):
            if not kept:
                convolution.forward(x_bnd[i], buffer_nkd)
            y_nkd = (kept[0][i] if kept else buffer_nkd) + bias_k[:, None]
            dp_i += _attend_back(y_nkd, p_i, ctx.scale, dm_bnd[i], buffer_nkd)
            dbias_k += buffer_nkd.sum((0, 2))
            convolution.backward(x_bnd[i], buffer_nkd, dx_bnd[i])
        return dx_bnd, convolution.filter_gradient(), dbias_k, dp_i, None, None


def _attend_back(y_nkd: Tensor, p_i: Tensor, scale: float, dm_nd: Tensor, dy_nkd: Tensor) -> Tensor:
    """Gradient of `attend_tokens`: writes dy, returns dp."""
    Q_nid, K_njd, V_njd = F.gelu(y_nkd).chunk(3, dim=1)
    A_nij = torch.softmax(scale * torch.bmm(Q_nid, K_njd.transpose(1, 2)), dim=-1)
    w_nj = p_i @ A_nij
    dw_nj = torch.bmm(V_njd, dm_nd[..., None])[..., 0]
    mean_ni = torch.bmm(A_nij, dw_nj[..., None])[..., 0]
    dS_nij = A_nij.mul_(scale * p_i[:, None]).mul_(dw_nj[:, None] - mean_ni[..., None])
    dV_njd = w_nj[..., None] * dm_nd[:, None]
    dg_nkd = torch.cat([torch.bmm(dS_nij, K_njd), torch.bmm(dS_nij.transpose(1, 2), Q_nid), dV_njd], dim=1)
    torch.ops.aten.gelu_backward.grad_input(dg_nkd, y_nkd, grad_input=dy_nkd)
    return mean_ni.sum(0)


class BlockConvolution:
    """All filters on a few channels of one sequence at a time (eq. 7), in reused buffers that stay in cache."""

    def __init__(self, filters_kn: Tensor, d: int) -> None:
        (self.k, self.n), self.d = filters_kn.shape, d
        self.size = transform_length(self.n)
        self.F_k1f = torch.fft.rfft(filters_kn, n=self.size)[:, None]
        self.dF_kf = torch.zeros_like(self.F_k1f[:, 0])
        self.block = max(1, min(d, BLOCK_BYTES // (filters_kn.element_size() * self.size * self.k)))
        self.rows = filters_kn.new_empty(self.k * self.block * self.size)
        self.products = self.F_k1f.new_empty(self.k * self.block * self.F_k1f.shape[-1])

    def _blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Channels, and the buffers for their rows of time and of frequency."""
        for first in range(0, self.d, self.block):
            count = min(self.block, self.d - first)
            rows = self.rows[: self.k * count * self.size].view(self.k, count, -1)
            products = self.products[: self.k * count * self.F_k1f.shape[-1]].view(self.k, count, -1)
            yield slice(first, first + count), rows, products

    def forward(self, x_nd: Tensor, y_nkd: Tensor) -> None:
        X_df = torch.fft.rfft(x_nd.T, n=self.size)
        for channels, rows_kds, products_kdf in self._blocks():
            torch.mul(X_df[channels], self.F_k1f, out=products_kdf)
            torch.fft.irfft(products_kdf, n=self.size, out=rows_kds)
            y_nkd[:, :, channels] = rows_kds[..., : self.n].permute(2, 0, 1)

    def backward(self, x_nd: Tensor, dy_nkd: Tensor, dx_nd: Tensor) -> None:
        """One rfft of dy serves both gradients; that of the filters is summed over calls."""
        conj_F_k1f = self.F_k1f.conj().resolve_conj()
        conj_X_df = torch.fft.rfft(x_nd.T, n=self.size).conj().resolve_conj()
        dX_df = torch.empty_like(conj_X_df)
        for channels, rows_kds, products_kdf in self._blocks():
            rows_kds[..., : self.n] = dy_nkd[:, :, channels].permute(1, 2, 0)
            rows_kds[..., self.n :] = 0
            dY_kdf = torch.fft.rfft(rows_kds)
            torch.sum(torch.mul(dY_kdf, conj_F_k1f, out=products_kdf), 0, out=dX_df[channels])
            self.dF_kf += torch.mul(dY_kdf, conj_X_df[channels], out=products_kdf).sum(1)
        dx_nd.copy_(torch.fft.irfft(dX_df, n=self.size)[:, : self.n].T)

    def filter_gradient(self) -> Tensor:
        return torch.fft.irfft(self.dF_kf, n=self.size)[:, : self.n]
