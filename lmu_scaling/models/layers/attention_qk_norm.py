"""Global self-attention with normalised queries and keys, without biases: the modern transformer's."""

from __future__ import annotations

from lmu_scaling.models.architecture import LayerDescription, ModelSpec, register_layer
from lmu_scaling.models.attention_costs import attention_rows


def _parameters(spec: ModelSpec) -> int:
    assert spec.heads is not None
    return 4 * spec.d * spec.d + 2 * (spec.d // spec.heads)


register_layer(
    LayerDescription(
        name="attention_qk_norm",
        fields=("heads",),
        parameters=_parameters,
        rows=attention_rows,
        activations=lambda spec: 9 * spec.d + (spec.heads or 0),
        builder=f"{__name__}:QKNormAttention",
    )
)

import torch
from torch import Tensor, nn

from lmu_scaling.models.layers.attention import GlobalAttention
from lmu_scaling.models.legendre import computing_dtype

NORM_EPS = 1e-5


class QKNormAttention(GlobalAttention):
    """RMSNorm over each head's queries and keys, with one gain for all heads: the logits cannot grow without bound."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec, bias=False)
        self.norm_q, self.norm_k = (nn.RMSNorm(spec.d // self.heads, NORM_EPS) for _ in range(2))

    def initialise(self, generator: torch.Generator | None) -> None:
        super().initialise(generator)
        self.norm_q.reset_parameters()
        self.norm_k.reset_parameters()

    def normalise(self, Q_bnhe: Tensor, K_bnhe: Tensor) -> tuple[Tensor, Tensor]:
        if Q_bnhe.device.type == "cpu":  # attention runs in float32 there; torch fuses the norm of one dtype only
            dtype = computing_dtype(Q_bnhe)
            Q_bnhe, K_bnhe = Q_bnhe.to(dtype), K_bnhe.to(dtype)
        return self.norm_q(Q_bnhe), self.norm_k(K_bnhe)
