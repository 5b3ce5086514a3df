"""The gated feed-forward layer (SwiGLU) of the modern transformer."""

from __future__ import annotations

from lmu_scaling.models.architecture import LayerDescription, ModelSpec, Row, register_layer


def _parameters(spec: ModelSpec) -> int:
    assert spec.ffn is not None
    return 3 * spec.d * spec.ffn


def _rows(spec: ModelSpec) -> tuple[Row, ...]:
    assert spec.ffn is not None
    return (Row("Gated FFN", "3dd'", 3 * spec.d * spec.ffn, "6dd'", 6 * spec.d * spec.ffn),)


register_layer(
    LayerDescription(
        name="ffn_gated",
        fields=("ffn",),
        parameters=_parameters,
        rows=_rows,
        activations=lambda spec: spec.d + 4 * (spec.ffn or 0),
        builder=f"{__name__}:GatedFeedForward",
    )
)

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmu_scaling.models.layer import Layer, glorot_


class GatedFeedForward(Layer):
    """y = (silu(x W₁) ⊙ x W₂) W₃."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.ffn is not None
        self.inner = nn.Linear(spec.d, 2 * spec.ffn, bias=False)
        self.outer = nn.Linear(spec.ffn, spec.d, bias=False)

    def initialise(self, generator: torch.Generator | None) -> None:
        for weight in (*self.inner.weight.data.chunk(2), self.outer.weight):
            glorot_(weight, generator)

    def residual_weights(self) -> list[Tensor]:
        return [self.outer.weight]

    def forward(self, x_bnd: Tensor) -> Tensor:
        gate, value = self.inner(x_bnd).chunk(2, dim=-1)
        return self.outer(F.silu(gate) * value)

    def initial_state(self, batch: int, device: torch.device | None) -> None:
        return None

    def step(self, x_bd: Tensor, state: None) -> tuple[Tensor, None]:
        return self.forward(x_bd), None
