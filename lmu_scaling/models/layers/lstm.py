"""The LSTM layer of the recurrent baseline."""

from __future__ import annotations

from lmu_scaling.models.architecture import GPUWork, LayerDescription, ModelSpec, Row, register_layer

GATES = "LSTM gates"

register_layer(
    LayerDescription(
        name="lstm",
        fields=(),
        parameters=lambda spec: 8 * spec.d * spec.d + 8 * spec.d,
        rows=lambda spec: (Row(GATES, "8d²", 8 * spec.d * spec.d, "16d²", 16 * spec.d * spec.d),),
        activations=lambda spec: 6 * spec.d,
        builder=f"{__name__}:LSTM",
        gpu=lambda spec: GPUWork(3 * 16 * spec.d * spec.d, 40 * 6 * spec.d, steps=3),
    )
)

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lmu_scaling.models import native
from lmu_scaling.models.forms import lstm_form
from lmu_scaling.models.layer import Layer, glorot_
from lmu_scaling.models.legendre import full_precision
from lmu_scaling.models.lstm_kernel import lstm


class LSTM(Layer):
    """One LSTM layer of width d with torch's two bias vectors. The forget gates start open (bias 1).

    States are float32. Under bfloat16 autocast cuDNN would run in float16 without loss scaling, and 14 to 31 % of the
    gradients at the paper's batch would round to zero.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.cell = nn.LSTM(spec.d, spec.d, batch_first=True)
        self.compiled = False

    def configure(self, compile: str, recompute: bool) -> None:
        self.compiled = native.allowed(compile)

    def initialise(self, generator: torch.Generator | None) -> None:
        parameter = self.cell.get_parameter
        for name in ("weight_ih_l0", "weight_hh_l0"):
            for gate in parameter(name).data.chunk(4):
                glorot_(gate, generator)
        nn.init.zeros_(parameter("bias_hh_l0"))
        for index, gate in enumerate(parameter("bias_ih_l0").data.chunk(4)):  # input, forget, cell, output
            nn.init.constant_(gate, 1.0 if index == 1 else 0.0)

    def forward(self, x_bnd: Tensor) -> Tensor:
        if lstm_form(x_bnd, self.compiled) == "native":
            parameter = self.cell.get_parameter
            bias_g = parameter("bias_ih_l0") + parameter("bias_hh_l0")
            return lstm(x_bnd, parameter("weight_ih_l0"), parameter("weight_hh_l0"), bias_g)
        return self._run(x_bnd)[0]

    def initial_state(self, batch: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
        zeros = self.cell.get_parameter("weight_hh_l0").new_zeros(1, batch, self.cell.hidden_size, device=device)
        return zeros, zeros

    def step(self, x_bd: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y_b1d, state = self._run(x_bd[:, None], state)
        return y_b1d[:, 0], state

    def _run(self, x_bnd: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        with full_precision(x_bnd):
            return self.cell(x_bnd.to(self.cell.get_parameter("weight_ih_l0").dtype), state)

    def forward_by_operation(self, x_nd: Tensor, run: Callable[..., Any]) -> Tensor:
        parameter = self.cell.get_parameter
        weights = torch.cat([parameter("weight_ih_l0"), parameter("weight_hh_l0")], dim=1).detach()
        bias = (parameter("bias_ih_l0") + parameter("bias_hh_l0")).detach()
        h = c = x_nd.new_zeros(1, x_nd.shape[1])
        rows = []
        for t, x in enumerate(x_nd.split(1)):
            matrices = [weights] if t == 0 else []
            gates = run(GATES, torch.matmul, torch.cat([x, h], dim=1), weights.T, matrices=matrices) + bias
            i, f, g, o = gates.chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            rows.append(h)
        return torch.cat(rows)
