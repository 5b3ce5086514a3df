"""The paper's equations 8–11 written out operation by operation on the weights of a built layer, and counted (Table 2).

The program itself computes less (one transform of x for Q, K and V; M' never formed), so Table 2 is checked on this
literal form, which must give the same output. M' is normalised after the product with V, which is where Table 2's dq'
comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.analysis.flops import count_flops
from lmu_scaling.models import layers
from lmu_scaling.models.lmu import transform_length


@dataclass(frozen=True)
class Measured:
    """Matrices and FLOPs per token of each operation, by the names of Table 2; the layer's output."""

    parameters: dict[str, int]
    flops: dict[str, float]
    output: Tensor


def measure(layer: Any, x_nd: Tensor) -> Measured:
    """Execute a layer literally on one sequence."""
    for kind, run in FORMS.items():
        if isinstance(layer, kind):
            return run(layer, x_nd)
    raise TypeError(f"no literal form of {type(layer).__name__}")


class _Tally:
    """Runs operations one after the other and notes what each cost."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.flops: dict[str, float] = {}

    def __call__(self, name: str, run: Callable[..., Any], *inputs: Any) -> Any:
        result, flops = count_flops(lambda: run(*inputs))
        self.flops[name] = self.flops.get(name, 0.0) + flops / self.tokens
        return result


def _lmu(layer: layers.LMU, x_nd: Tensor) -> Measured:
    n, size = len(x_nd), transform_length(len(x_nd))
    tally, first = _Tally(n), "LMU + Q + K + V"
    H_qn = layer.memory.filters(n, x_nd.dtype, x_nd.device)
    made = []
    for L_iq, bias_i in zip(layer.L.detach(), layer.bias.detach(), strict=True):
        filters_in = tally(first, torch.matmul, L_iq, H_qn)
        spectrum_if = tally("H̃ to frequencies", torch.fft.rfft, filters_in, size)
        X_df = tally(first, torch.fft.rfft, x_nd.T, size)
        product_idf = tally(first, torch.mul, X_df[None], spectrum_if[:, None])
        y_idn = tally(first, torch.fft.irfft, product_idf, size)[..., :n]
        made.append(F.gelu(y_idn + bias_i[:, None, None]).permute(2, 0, 1))  # [n, i, d]
    Q, K, V = made
    scores = tally("QKᵀ", torch.matmul, Q, K.transpose(1, 2))
    raised = torch.exp(layer.scale * scores - (layer.scale * scores).amax(dim=2, keepdim=True))
    M = tally("M'", lambda: (raised @ V) / raised.sum(dim=2, keepdim=True))
    m_nd = tally("m", lambda: (layer.p.detach() @ M.transpose(0, 1).flatten(1)).view(n, -1))
    parameters = {first: layer.L.numel(), "QKᵀ": 0, "M'": 0, "m": layer.p.numel(), "H̃ to frequencies": 0}
    return Measured(parameters, tally.flops, m_nd)


def _feed_forward(layer: layers.FeedForward, x_nd: Tensor) -> Measured:
    tally = _Tally(len(x_nd))
    y_nd = tally("FFN", layer, x_nd)
    return Measured({"FFN": layer.inner.weight.numel() + layer.outer.weight.numel()}, tally.flops, y_nd)


def _attention(layer: layers.GlobalAttention, x_nd: Tensor) -> Measured:
    """Row by row, so that a token pays for the keys it sees and no others."""
    n, d = x_nd.shape
    e = d // layer.heads
    tally, project, mix = _Tally(n), "Attention projections", "Attention scores and values"
    qkv = tally(project, layer.qkv, x_nd)
    Q, K, V = qkv.view(n, 3, layer.heads, e).permute(1, 2, 0, 3)  # [h, n, e]
    rows = []
    for t in range(n):
        scores = tally(mix, torch.matmul, Q[:, t : t + 1], K[:, : t + 1].transpose(1, 2))
        weights = torch.softmax(scores / e**0.5, dim=-1)
        rows.append(tally(mix, torch.matmul, weights, V[:, : t + 1]))
    mixed_nd = torch.cat(rows, dim=1).transpose(0, 1).reshape(n, d)
    y_nd = tally(project, layer.out, mixed_nd)
    return Measured({project: layer.qkv.weight.numel() + layer.out.weight.numel(), mix: 0}, tally.flops, y_nd)


def _lstm(layer: layers.LSTM, x_nd: Tensor) -> Measured:
    of = layer.cell.get_parameter
    w_in, w_state = of("weight_ih_l0").detach(), of("weight_hh_l0").detach()
    w_all = torch.cat([w_in, w_state], dim=1).T
    bias = (of("bias_ih_l0") + of("bias_hh_l0")).detach()
    tally = _Tally(len(x_nd))
    h = c = x_nd.new_zeros(1, x_nd.shape[1])
    rows = []
    for x in x_nd.split(1):
        gates = tally("LSTM gates", torch.matmul, torch.cat([x, h], dim=1), w_all) + bias
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        rows.append(h)
    return Measured({"LSTM gates": w_in.numel() + w_state.numel()}, tally.flops, torch.cat(rows))


FORMS: dict[Any, Callable[..., Measured]] = {
    layers.LMU: _lmu,
    layers.FeedForward: _feed_forward,
    layers.GlobalAttention: _attention,
    layers.LSTM: _lstm,
}
