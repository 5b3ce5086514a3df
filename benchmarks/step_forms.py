"""Training steps and losses that are compared: the plain eager way, and what `train` does.

Plain eager: reduced-order layer as printed (torch's own gradients, M' formed), full logits, `F.cross_entropy`,
`torch.optim.Adam` with its fused kernel. Everything else (network, initial weights, tokens) is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.layer_forms import attend_literally, convolve
from lmu_scaling.models import resolve
from lmu_scaling.models.layers import LMU
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.training.adam import Adam
from lmu_scaling.training.loop import Objective
from lmu_scaling.training.loss import linear_cross_entropy

N, BATCH = 1024, 4
WIDTHS = {"S": 48, "M": 96, "L": 204}
PLAIN, OURS = "plain eager", "ours"


class PlainLMU(torch.nn.Module):
    """The reduced-order layer of appendix A.1, written down and left to torch."""

    def __init__(self, layer: LMU) -> None:
        super().__init__()
        self.inner = layer

    def forward(self, x_bnd: Tensor) -> Tensor:
        L_kq = self.inner.L.flatten(0, 1)
        filters_kn = self.inner.memory.filters(x_bnd.shape[1], x_bnd.dtype, x_bnd.device, L_kq)
        y_bnkd = convolve(x_bnd, filters_kn).contiguous() + self.inner.bias.flatten()[:, None]
        return attend_literally(y_bnkd, self.inner.p)


def plain(model: LanguageModel) -> LanguageModel:
    for index, layer in enumerate(model.layers):
        if isinstance(layer, LMU):
            model.layers[index] = PlainLMU(layer)
    return model


def stepper(
    variant: str, d: int, vocab: int, kind: str, n: int = N, batch: int = BATCH, clip: float = math.inf
) -> Callable[[], None]:
    """A closure that takes one optimiser step on fixed random tokens; gradients are clipped if `clip` is finite."""
    model = build(resolve(variant, d, n, vocab), seed=1)
    ids = torch.randint(vocab, (batch, n + 1), generator=torch.Generator().manual_seed(0))
    inputs_bn, targets_bn = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    if kind == PLAIN:
        model = plain(model)
        optimiser = torch.optim.Adam(model.parameters(), eps=1e-7, fused=True)

        def step() -> None:
            optimiser.zero_grad()
            logits = model.hidden(inputs_bn).flatten(0, 1) @ model.head_weight.T
            F.cross_entropy(logits, targets_bn.flatten()).backward()
            if math.isfinite(clip):
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()

        return step
    objective, adam = Objective(model), Adam(model, [0.9, 0.999], 1e-7, 0.0)

    def step_ours() -> None:
        adam.zero_grad()
        objective(inputs_bn, targets_bn).backward()
        if math.isfinite(clip):
            norm = torch.nn.utils.get_total_norm(adam.gradients())
            torch.nn.utils.clip_grads_with_norm_(adam.parameters.values(), clip, norm)
        adam.step(1e-3)

    return step_ours


def loss_call(kind: str, d: int, vocab: int, tokens: int) -> Callable[[], Any]:
    """The loss and its gradients to hidden states and weights."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(tokens, d, generator=generator, requires_grad=True)
    weight = (0.1 * torch.randn(vocab, d, generator=generator)).requires_grad_()
    targets = torch.randint(vocab, (tokens,), generator=generator)
    if kind == PLAIN:
        return lambda: torch.autograd.grad(F.cross_entropy(h @ weight.T, targets), (h, weight))
    return lambda: torch.autograd.grad(linear_cross_entropy(h, weight, targets), (h, weight))


# For `harness.peak_memory`: memory does not depend on the number of threads, but its noise does.


def step_probe(variant: str, d: int, vocab: int, kind: str) -> Callable[[], Any]:
    torch.set_num_threads(1)
    return stepper(variant, d, vocab, kind)


def loss_probe(kind: str, d: int, vocab: int, tokens: int) -> Callable[[], Any]:
    torch.set_num_threads(1)
    return loss_call(kind, d, vocab, tokens)
