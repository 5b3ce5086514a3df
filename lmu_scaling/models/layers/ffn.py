"""The feed-forward layer (eq. 11)."""

from __future__ import annotations

from lmu_scaling.models.architecture import LayerDescription, ModelSpec, Row, register_layer


def _parameters(spec: ModelSpec) -> int:
    assert spec.ffn is not None
    return 2 * spec.d * spec.ffn + spec.ffn + spec.d


def _rows(spec: ModelSpec) -> tuple[Row, ...]:
    assert spec.ffn is not None
    return (Row("FFN", "2dd'", 2 * spec.d * spec.ffn, "4dd'", 4 * spec.d * spec.ffn),)


register_layer(
    LayerDescription(
        name="ffn",
        fields=("ffn", "activation"),
        parameters=_parameters,
        rows=_rows,
        activations=lambda spec: spec.d + 2 * (spec.ffn or 0),
        builder=f"{__name__}:FeedForward",
    )
)

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmu_scaling.models.layer import Layer, glorot_


class FeedForward(Layer):
    """y = gelu(x W₁ + b₁) W₂ + b₂."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.ffn is not None
        self.inner = nn.Linear(spec.d, spec.ffn)
        self.outer = nn.Linear(spec.ffn, spec.d)

    def initialise(self, generator: torch.Generator | None) -> None:
        for linear in (self.inner, self.outer):
            glorot_(linear.weight, generator)
            nn.init.zeros_(linear.bias)

    def residual_weights(self) -> list[Tensor]:
        return [self.outer.weight]

    def forward(self, x_bnd: Tensor) -> Tensor:
        return self.outer(F.gelu(self.inner(x_bnd)))

    def initial_state(self, batch: int, device: torch.device | None) -> None:
        return None

    def step(self, x_bd: Tensor, state: None) -> tuple[Tensor, None]:
        return self.forward(x_bd), None
