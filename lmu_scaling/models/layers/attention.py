"""Global self-attention: causal, multi-head, over the whole sequence."""

from __future__ import annotations

from lmu_scaling.models.architecture import LayerDescription, ModelSpec, register_layer
from lmu_scaling.models.attention_costs import MIXING, PROJECTIONS, attention_rows

register_layer(
    LayerDescription(
        name="attention",
        fields=("heads",),
        parameters=lambda spec: 4 * spec.d * spec.d + 4 * spec.d,
        rows=attention_rows,
        activations=lambda spec: (7 if spec.positions == "rotary" else 5) * spec.d + (spec.heads or 0),
        builder=f"{__name__}:GlobalAttention",
    )
)

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmu_scaling.models import native
from lmu_scaling.models.causal_attention import causal_attention
from lmu_scaling.models.layer import Layer, glorot_
from lmu_scaling.models.rotary import rotate


class GlobalAttention(Layer):
    """Scaled by 1/√e, where e = d / heads, with biases. Rotary positions turn queries and keys."""

    def __init__(self, spec: ModelSpec, bias: bool = True) -> None:
        super().__init__()
        assert spec.heads is not None
        self.heads, self.rotary = spec.heads, spec.positions == "rotary"
        self.qkv = nn.Linear(spec.d, 3 * spec.d, bias=bias)
        self.out = nn.Linear(spec.d, spec.d, bias=bias)
        self.compiled = False

    def configure(self, compile: str, recompute: bool) -> None:
        self.compiled = native.allowed(compile)

    def initialise(self, generator: torch.Generator | None) -> None:
        for weight in self.qkv.weight.data.chunk(3):
            glorot_(weight, generator)
        glorot_(self.out.weight, generator)
        for linear in (self.qkv, self.out):
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def residual_weights(self) -> list[Tensor]:
        return [self.out.weight]

    def normalise(self, Q_bnhe: Tensor, K_bnhe: Tensor) -> tuple[Tensor, Tensor]:
        """Of queries and keys, before they are rotated; none here."""
        return Q_bnhe, K_bnhe

    def _heads(self, qkv_bnk: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        Q_bnhe, K_bnhe, V_bnhe = qkv_bnk.unflatten(2, (3, self.heads, -1)).unbind(2)
        return (*self.normalise(Q_bnhe, K_bnhe), V_bnhe)

    def _rotated(self, qkv_bnk: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [b, h, n, e] of the tokens at the positions start, start + 1, …"""
        Q, K, V = (part.transpose(1, 2) for part in self._heads(qkv_bnk))
        return (rotate(Q, start), rotate(K, start), V) if self.rotary else (Q, K, V)

    def forward(self, x_bnd: Tensor) -> Tensor:
        mixed_bnhe = causal_attention(*self._heads(self.qkv(x_bnd)), self.rotary, self.compiled)
        return self.out(mixed_bnhe.reshape(x_bnd.shape))

    def initial_state(self, batch: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
        empty = self.qkv.weight.new_empty(batch, self.heads, 0, self.out.in_features // self.heads, device=device)
        return empty, empty

    def step(self, x_bd: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The state holds the keys and values of all tokens so far: it grows with the sequence (Table 1)."""
        Q_bh1e, K_bh1e, V_bh1e = self._rotated(self.qkv(x_bd[:, None]), start=state[0].shape[2])
        K_bhne = torch.cat([state[0], K_bh1e.to(state[0].dtype)], dim=2)
        V_bhne = torch.cat([state[1], V_bh1e.to(state[1].dtype)], dim=2)
        mixed_bh1e = F.scaled_dot_product_attention(Q_bh1e.to(K_bhne.dtype), K_bhne, V_bhne)
        return self.out(mixed_bh1e.reshape(x_bd.shape)), (K_bhne, V_bhne)

    def forward_by_operation(self, x_nd: Tensor, run: Callable[..., Any]) -> Tensor:
        """Row by row, so that a token pays for the keys it can see and no others."""
        n, d = x_nd.shape
        e = d // self.heads
        qkv_nk = run(PROJECTIONS, self.qkv, x_nd, matrices=[self.qkv.weight])
        Q_hne, K_hne, V_hne = (part[0] for part in self._rotated(qkv_nk[None]))
        rows = []
        for t in range(n):
            scores = run(MIXING, torch.matmul, Q_hne[:, t : t + 1], K_hne[:, : t + 1].transpose(1, 2))
            weights = torch.softmax(scores / e**0.5, dim=-1)
            rows.append(run(MIXING, torch.matmul, weights, V_hne[:, : t + 1]))
        mixed_nd = torch.cat(rows, dim=1).transpose(0, 1).reshape(n, d)
        return run(PROJECTIONS, self.out, mixed_nd, matrices=[self.out.weight])
