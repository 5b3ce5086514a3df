"""Adam over named parameters, by torch's fused kernel.

The class `torch.optim.Adam` does the same but imports torch's compiler when it is made, which costs a short CPU run
more time than its first hundred steps. Here the state is a plain dictionary that a checkpoint can name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """Adam (Kingma & Ba) with decoupled weight decay; the rate is given at each step."""

    def __init__(self, model: nn.Module, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        self.parameters = dict(model.named_parameters())
        self.settings: dict[str, Any] = {"beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay}
        self.steps = 0
        device = next(iter(self.parameters.values())).device
        self.counts = torch.zeros(len(self.parameters), device=device)  # the kernel wants its own count per tensor
        self.state = {key: {n: torch.zeros_like(p) for n, p in self.parameters.items()} for key in MOMENTS}

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.parameters.values() if p.grad is not None]

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        used = {name: p for name, p in self.parameters.items() if p.grad is not None}
        counts = self.counts.fill_(self.steps).unbind()[: len(used)]
        self.steps += 1
        adam(
            list(used.values()),
            self.gradients(),
            [self.state["exp_avg"][name] for name in used],
            [self.state["exp_avg_sq"][name] for name in used],
            [],
            list(counts),
            fused=True,
            amsgrad=False,
            maximize=False,
            lr=learning_rate,
            decoupled_weight_decay=True,
            **self.settings,
        )

    def tensors(self) -> dict[str, Tensor]:
        """The moments by name, for a checkpoint."""
        return {f"{key}.{name}": tensor for key in MOMENTS for name, tensor in self.state[key].items()}

    def restore(self, tensors: dict[str, Tensor], steps: int) -> None:
        self.steps = steps
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
