"""What the network asks of a layer, and what layers share. The layers themselves are in `layers/`."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def glorot_(weight: Tensor, generator: torch.Generator | None) -> None:
    nn.init.xavier_uniform_(weight, generator=generator)


class Layer(nn.Module, abc.ABC):
    """A sub-layer, made from a `ModelSpec`, with a parallel form and a step for generation (paper, section 4).

    It maps x [b, n, d] to [b, n, d]. Norms, skip connections and dropout belong to the network around it.
    """

    @abc.abstractmethod
    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw all parameters, in a fixed order."""

    @abc.abstractmethod
    def forward(self, x_bnd: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def initial_state(self, batch: int, device: torch.device | None) -> Any: ...

    @abc.abstractmethod
    def step(self, x_bd: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The output for one token x [b, d], and the next state."""

    def residual_weights(self) -> list[Tensor]:
        """The weights of the last projection, which `ModelSpec.residual_gain` scales; none by default."""
        return []

    def configure(self, compile: str, recompute: bool) -> None:
        """Choose between implementations that give the same results; see `network.build`. The default has only one."""

    def forward_by_operation(self, x_nd: Tensor, run: Callable[..., Any]) -> Tensor:
        """The output for one sequence, one operation of Table 2 after the other, so that each can be counted.

        `run(operation, function, *inputs, matrices=…)` returns function(*inputs) and counts it, with the matrices it
        multiplies by, under that name. The default is the whole forward pass as one operation; None stands for the
        layer's first row in Table 2.
        """
        matrices = [parameter for parameter in self.parameters() if parameter.dim() > 1]
        return run(None, self, x_nd[None], matrices=matrices)[0]
