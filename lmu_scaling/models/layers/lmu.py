"""The paper's layer: a Legendre memory with implicit self-attention on it (eqs. 1–10).

FLOPs follow the paper's convention: a multiply–add is two, element-wise functions are not counted. The appendix writes
3[d·L_FFT(q') + 2qq'] although L_FFT already has the factor d; Table 2's first row is right. L_FFT as derived has
C(2n)/n = 10(log₂n + 1); its printed result, 5(log₂n + 1), needs the factor ½ of a real FFT.
"""

from __future__ import annotations

import math

from lmu_scaling.models.architecture import GPUWork, LayerDescription, ModelSpec, Row, register_layer
from lmu_scaling.models.chunks import OWN_KERNEL, SEGMENT, chunks, padded

QKV, SCORES, MIXED, OUTPUT = "LMU + Q + K + V", "QKᵀ", "M'", "m"


def _fft_flops_per_token(n: int) -> float:
    """C(2n)/n of the appendix for a real signal: half of 10 (log₂ n + 1)."""
    return 5 * (math.log2(n) + 1)


def memory_flops(d: int, q: int, n: int) -> int:
    """FLOPs per token of the memory alone, by FFT (appendix A.2): d(61q + 55) at n = 1024."""
    return round(d * (_fft_flops_per_token(n) * (q + 1) + 6 * q))


def qkv_flops(d: int, q: int, q_reduced: int, n: int) -> int:
    """Table 2, first row, LMU + Q + K + V in reduced order: 1,004,460 at the paper's largest model."""
    return round(3 * d * (_fft_flops_per_token(n) * (q_reduced + 1) + 6 * q_reduced) + 6 * q * q_reduced)


def _rows(spec: ModelSpec) -> tuple[Row, ...]:
    assert spec.q is not None
    assert spec.q_reduced is not None
    d, q, r, n = spec.d, spec.q, spec.q_reduced, spec.context
    formula = "3d[5(q'+1)(log₂n+1)+6q'] + 6qq'"
    return (
        Row(QKV, "3qq'", 3 * q * r, formula, qkv_flops(d, q, r, n)),
        Row(SCORES, "–", 0, "2dq'²", 2 * d * r * r),
        Row(MIXED, "–", 0, "2dq'² + dq'", 2 * d * r * r + d * r),
        Row(OUTPUT, "q'", r, "2dq'", 2 * d * r),
    )


def _parameters(spec: ModelSpec) -> int:
    assert spec.q is not None
    assert spec.q_reduced is not None
    return 3 * spec.q * spec.q_reduced + 3 * spec.q_reduced + spec.q_reduced


def _gpu_work(spec: ModelSpec) -> GPUWork:
    """Products over chunks (three times, as any product), then tiles of 64 rows with ⌊64/q'⌋ tokens (four products).

    y is written once and read once forwards; backwards it is read once, its gradient is written once and read twice.
    """
    assert spec.q is not None
    assert spec.q_reduced is not None
    k, width = 3 * spec.q_reduced, padded(spec.d)
    cut = chunks(min(spec.context, SEGMENT), spec.q, k)
    tiles = 4 * 2 * 64 * 64 / max(1, min(16, 64 // spec.q_reduced)) / OWN_KERNEL
    flops = width * (3 * cut.flops(k) / cut.n + tiles)
    return GPUWork(flops, 6 * 2 * k * width * cut.length / cut.n + 6 * 2 * width * cut.rows / cut.steps)


register_layer(
    LayerDescription(
        name="lmu",
        fields=("q", "q_reduced", "theta", "softmax_scale", "activation"),
        parameters=_parameters,
        rows=_rows,
        activations=lambda spec: (3 * (spec.q_reduced or 0) + 2) * spec.d,
        builder=f"{__name__}:LMU",
        gpu=_gpu_work,
    )
)

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmu_scaling.models import lmu_kernels, native
from lmu_scaling.models.forms import step_form
from lmu_scaling.models.implicit_attention import attend_tokens, lmu_attention
from lmu_scaling.models.layer import Layer, glorot_
from lmu_scaling.models.legendre import (
    LegendreMemory,
    MemoryState,
    add_product,
    computing_dtype,
    full_precision,
    transform_length,
)


class LMU(Layer):
    """Parameters: L_i with a bias vector of q' numbers for each of Q, K and V, and p."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.q is not None
        assert spec.q_reduced is not None
        assert spec.theta is not None
        self.memory = LegendreMemory(spec.q, spec.theta)
        self.L = nn.Parameter(torch.empty(3, spec.q_reduced, spec.q))
        self.bias = nn.Parameter(torch.empty(3, spec.q_reduced))
        self.p = nn.Parameter(torch.empty(spec.q_reduced))
        self.d = spec.d
        self.scale = 1 / math.sqrt(spec.d) if spec.softmax_scale == "sqrt_d" else 1.0
        self.compiled, self.keep = False, True

    def configure(self, compile: str, recompute: bool) -> None:
        self.compiled, self.keep = native.allowed(compile), not recompute

    def initialise(self, generator: torch.Generator | None) -> None:
        for L_iq in self.L.data:
            glorot_(L_iq, generator)
        nn.init.zeros_(self.bias)
        glorot_(self.p.data[None], generator)

    def residual_weights(self) -> list[Tensor]:
        return [self.p]

    def forward(self, x_bnd: Tensor) -> Tensor:
        parameters = (self.L.flatten(0, 1), self.bias.flatten(), self.p)
        return lmu_attention(x_bnd, self.memory, *parameters, self.scale, compiled=self.compiled, keep=self.keep)

    def initial_state(self, batch: int, device: torch.device | None) -> MemoryState:
        return self.memory.initial_state(batch, self.d, computing_dtype(self.L), device)

    def step(self, x_bd: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
        form = step_form(x_bd.device.type, state.m_bqd.dtype, self.compiled)
        product = lmu_kernels.add_product if form == "native" else add_product
        m_bqd, state = self.memory.step(x_bd, state, product)
        with full_precision(x_bd):
            L_kq, bias_k = self.L.to(m_bqd.dtype).flatten(0, 1), self.bias.to(m_bqd.dtype).flatten()
            y_bkd = product(bias_k[:, None], L_kq, m_bqd)
            return attend_tokens(y_bkd, self.p.to(m_bqd.dtype), self.scale), state

    def forward_by_operation(self, x_nd: Tensor, run: Callable[..., Any]) -> Tensor:
        """Equations 8–10 as printed: `forward` computes less (one transform of x for Q, K and V; M' is never formed).

        M' is normalised after the product with V, which is where Table 2's dq' comes from.
        """
        n, size = len(x_nd), transform_length(len(x_nd))
        H_qn = self.memory.filters(n, x_nd.dtype, x_nd.device)
        made = []
        for L_iq, bias_i in zip(self.L.detach(), self.bias.detach(), strict=True):
            filters_in = run(QKV, torch.matmul, L_iq, H_qn, matrices=[L_iq])
            spectrum_if = run("H̃ to frequencies", torch.fft.rfft, filters_in, size)
            X_df = run(QKV, torch.fft.rfft, x_nd.T, size)
            product_idf = run(QKV, torch.mul, X_df[None], spectrum_if[:, None])
            y_idn = run(QKV, torch.fft.irfft, product_idf, size)[..., :n]
            made.append(F.gelu(y_idn + bias_i[:, None, None]).permute(2, 0, 1))
        Q_nid, K_njd, V_njd = made
        scores = self.scale * run(SCORES, torch.matmul, Q_nid, K_njd.transpose(1, 2))
        raised = torch.exp(scores - scores.amax(dim=2, keepdim=True))
        M_nid = run(MIXED, lambda: (raised @ V_njd) / raised.sum(dim=2, keepdim=True))
        p_i = self.p.detach()
        return run(OUTPUT, lambda: (p_i @ M_nid.transpose(0, 1).flatten(1)).view(n, -1), matrices=[p_i])

    def reduced_order(self, x_1nd: Tensor) -> dict[str, float]:
        """L·(H * x) against (L·H) * x (appendix A.1): the largest relative difference, and FLOPs per token of each."""
        (_, q_reduced, q), n = self.L.shape, x_1nd.shape[1]
        L_kq = self.L.detach().flatten(0, 1)
        full = torch.einsum("kq,bnqd->bnkd", L_kq, self.memory(x_1nd, form="recurrent"))
        return {
            "reduced_order_error": float((full - self.memory(x_1nd, L_kq)).abs().max() / full.abs().max()),
            "flops_full_order": memory_flops(self.d, q, n) + 6 * self.d * q * q_reduced,
            "flops_reduced_order": qkv_flops(self.d, q, q_reduced, n),
        }
