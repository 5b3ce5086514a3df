"""The language model of a `ModelSpec`: embedding, blocks of sub-layers, tied head (paper, sections 4 and 5).

model = build(resolve("lmu", 48, 1024, 50257), seed=1)
logits_bnv = model(ids_bn)                       # parallel, for training and evaluation
state = model.initial_state(batch=1)
logits_bv, state = model.step(ids_b, state)      # one token at a time, for generation
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmu_scaling.errors import ModelError
from lmu_scaling.models import ModelSpec, architecture
from lmu_scaling.models.forms import body_precision
from lmu_scaling.models.layer import Layer

EMBEDDING_STD = 0.02
NORM_EPS = 1e-5
COMPILE = ("auto", "on", "off")


@dataclass(frozen=True)
class GenerationState:
    """One state per sub-layer, and the number of tokens read."""

    layers: tuple[Any, ...]
    position: int


def _norm(kind: str, d: int) -> nn.Module:
    if kind == "rms":
        return nn.RMSNorm(d, NORM_EPS)
    return nn.LayerNorm(d, NORM_EPS, elementwise_affine=kind == "layer")


class LanguageModel(nn.Module):
    """x ← x + f(norm(x)) for each sub-layer f, a final norm, and the embedding as head."""

    head_weight: nn.Parameter

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        arch = architecture(spec.variant)
        self.spec = spec
        self.head_weight = nn.Parameter(torch.empty(spec.vocab, spec.d))
        learned = spec.positions == "learned"
        self.positions = nn.Parameter(torch.empty(spec.context, spec.d)) if learned else None
        self.layers = nn.ModuleList([layer.torch_class()(spec) for _ in range(spec.blocks) for layer in arch.layers])
        self.norms = nn.ModuleList([_norm(arch.norm, spec.d) for _ in range(len(self.layers) + 1)])
        self.dropout = nn.Dropout(spec.dropout)
        self.compiled = False  # whether the loss may use compiled kernels; see `build`

    def initialise(self, generator: torch.Generator | None = None) -> None:
        nn.init.normal_(self.head_weight, std=EMBEDDING_STD, generator=generator)
        if self.positions is not None:
            nn.init.normal_(self.positions, std=EMBEDDING_STD, generator=generator)
        for norm in self.norms:
            norm.reset_parameters()  # type: ignore[operator]
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.initialise(generator)
            for weight in layer.residual_weights():
                weight.data.mul_(self.spec.residual_gain)

    def hidden(self, ids_bn: Tensor) -> Tensor:
        """h [b, n, d], the input of the head."""
        x_bnd = self.spec.embedding_scale * F.embedding(ids_bn, self.head_weight)
        if self.positions is not None:
            self._refuse_beyond_context(ids_bn.shape[1])
            x_bnd = x_bnd + self.positions[: ids_bn.shape[1]]
        x_bnd = self.dropout(x_bnd)
        with body_precision(x_bnd):
            for norm, layer in zip(self.norms, self.layers, strict=False):  # the last norm is the final one
                x_bnd = x_bnd + self.dropout(layer(norm(x_bnd)))
            return self.norms[-1](x_bnd)

    def forward(self, ids_bn: Tensor) -> Tensor:
        return F.linear(self.hidden(ids_bn), self.head_weight)

    def initial_state(self, batch: int, device: torch.device | str | None = None) -> GenerationState:
        where = self.head_weight.device if device is None else torch.device(device)
        return GenerationState(tuple(layer.initial_state(batch, where) for layer in self.layers), 0)  # type: ignore[operator]

    def step(self, ids_b: Tensor, state: GenerationState) -> tuple[Tensor, GenerationState]:
        """Logits [b, v] for the next token; for the LMU and the LSTM in constant memory and time."""
        x_bd = self.spec.embedding_scale * F.embedding(ids_b, self.head_weight)
        if self.positions is not None:
            self._refuse_beyond_context(state.position + 1)
            x_bd = x_bd + self.positions[state.position]
        x_bd = self.dropout(x_bd)
        states = []
        for index, (layer, old) in enumerate(zip(self.layers, state.layers, strict=True)):
            y_bd, new = layer.step(self.norms[index](x_bd), old)  # type: ignore[operator]
            x_bd = x_bd + self.dropout(y_bd)
            states.append(new)
        return F.linear(self.norms[-1](x_bd), self.head_weight), GenerationState(tuple(states), state.position + 1)

    def _refuse_beyond_context(self, n: int) -> None:
        if n > self.spec.context:
            raise ModelError(
                f"{n} tokens, but this model has learned positions for {self.spec.context} only",
                f"model {self.spec.variant}, d = {self.spec.d}",
                "give it shorter windows; LMU and LSTM variants accept any length",
            )


def build(spec: ModelSpec, seed: int | None = None, compile: str = "auto", recompute: bool = False) -> LanguageModel:
    """A model on the CPU. With a seed, its weights depend on nothing else (not even on the global random state).

    `compile` says whether layers and loss may use kernels that are compiled for this machine: "on" requires a compiler,
    "off" forbids them, "auto" uses them if there is a compiler. `recompute` trades time for memory: layers that can
    keep only their input for the backward pass. Neither is part of a run's identity.
    """
    if compile not in COMPILE:
        raise ModelError(f"unknown compile mode {compile!r}", "build", f"use one of {', '.join(COMPILE)}")
    with torch.random.fork_rng(devices=[]):  # torch's layers draw initial weights, which are replaced below
        model = LanguageModel(spec)
    model.initialise(None if seed is None else torch.Generator().manual_seed(seed))
    model.compiled = compile != "off"
    for layer in model.layers:
        assert isinstance(layer, Layer)
        layer.configure(compile, recompute)
    return model
