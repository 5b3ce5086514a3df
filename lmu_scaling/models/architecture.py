"""Descriptions of layers and models, without torch (paper, section 4).

A `LayerDescription` (`ffn`, `lmu`, …) has a layer's parameter count, its FLOPs, and the place of its torch class. An
`Architecture` is a stack of layers. A `ModelSpec` is an architecture with all its sizes. The workflow imports this
module to plan and count, so nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmu_scaling.errors import ModelError

FFN_RULES = ("solve", "4d", "none")
POSITIONS = ("none", "learned", "rotary")
NORMS = {"layer": 2, "layer_plain": 0, "rms": 1}  # trainable vectors of width d in each norm


@dataclass(frozen=True)
class ModelSpec:
    """All sizes of one model; a field that its layers do not use is None."""

    variant: str
    d: int
    """Embedding width."""
    context: int
    """Training sequence length n."""
    vocab: int
    blocks: int
    ffn: int | None = None
    """d', the hidden width of the FFN (eq. 11)."""
    heads: int | None = None
    """Heads of global self-attention."""
    q: int | None = None
    """Order of the memory."""
    q_reduced: int | None = None
    """q', rows of Q, K and V (eq. 8)."""
    theta: int | float | None = None
    """Length of the memory's window, in tokens."""
    softmax_scale: str | None = None
    """Of the implicit attention: "none" as printed, or "sqrt_d"."""
    activation: str | None = None
    dropout: float = 0.0
    positions: str = "none"
    """"learned": an absolute vector for each position; "rotary": queries and keys are rotated; or "none"."""
    embedding_scale: float = 1.0
    """Factor on the token's embedding at the input; the head uses the embedding as it is."""
    residual_gain: float = 1.0
    """Factor on the initial weights of each sub-layer's last projection."""

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelSpec:
        known = {entry.name for entry in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ModelError(
                f"a model spec has unknown fields: {', '.join(unknown)}",
                "model",
                f"known are {', '.join(sorted(known))}",
            )
        return cls(**values)


@dataclass(frozen=True)
class Row:
    """One row of Table 2: an operation of one layer, per token, forward pass."""

    operation: str
    parameters_formula: str
    parameters: int
    """Matrices only, as Table 2 and Kaplan et al. count them."""
    flops_formula: str
    flops: int


@dataclass(frozen=True)
class GPUWork:
    """What a GPU does for one token of training, forwards and backwards, in bfloat16."""

    flops: float
    """Executed, with padding and recomputation; Table 2's may be fewer."""
    bytes: float
    """Read from and written to the GPU's memory."""
    steps: int = 0
    """Launches that wait for each other, per time step of a micro-batch."""

    def __add__(self, other: GPUWork) -> GPUWork:
        return GPUWork(self.flops + other.flops, self.bytes + other.bytes, self.steps + other.steps)


@dataclass(frozen=True)
class LayerDescription:
    """A layer by name: the spec fields it needs, its counts, and `module:Class` of its torch implementation."""

    name: str
    fields: tuple[str, ...]
    parameters: Callable[[ModelSpec], int] = field(compare=False)
    """Exact number of trainable parameters of one layer, biases included."""
    rows: Callable[[ModelSpec], tuple[Row, ...]] = field(compare=False)
    activations: Callable[[ModelSpec], int] = field(compare=False)
    """Numbers per token that training keeps between forward and backward."""
    builder: str
    gpu: Callable[[ModelSpec], GPUWork] | None = field(default=None, compare=False)
    """Work of one layer on a GPU, if it does not follow from `rows` and `activations` (counting.py)."""

    @property
    def module(self) -> str:
        return self.builder.partition(":")[0]

    def torch_class(self) -> Any:
        return getattr(importlib.import_module(self.module), self.builder.partition(":")[2])


@dataclass(frozen=True)
class Architecture:
    """A model variant: `blocks` times the `sublayers`, between the embedding and the tied head."""

    name: str
    label: str
    blocks: int
    sublayers: tuple[str, ...]
    norm: str = "layer"
    """One before each residual sub-layer, one at the end. "layer": LayerNorm with gain and bias; "layer_plain": without
    either; "rms": RMSNorm with gain."""
    positions: str = "none"
    """Default of `ModelSpec.positions`; learned positions are outside N."""
    embedding_scale: float = 1.0
    """Default of `ModelSpec.embedding_scale`, where it is not tuned."""
    residual_gain: float = 1.0
    """Default of `ModelSpec.residual_gain`."""
    ffn_rule: str = "solve"
    """"solve": exact N nearest to 24 d²; "4d": as in GPT-2; "none"."""

    @property
    def layers(self) -> tuple[LayerDescription, ...]:
        return tuple(_look_up(_LAYERS, name, "layer") for name in self.sublayers)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(name for layer in self.layers for name in layer.fields)

    @property
    def modules(self) -> list[str]:
        """The variant's own module and those of its layers: the code that only some runs depend on."""
        return sorted({f"{__package__}.variants.{self.name}", *(layer.module for layer in self.layers)})


_LAYERS: dict[str, LayerDescription] = {}
_ARCHITECTURES: dict[str, Architecture] = {}


def register_layer(layer: LayerDescription) -> None:
    _register(_LAYERS, layer, "layers")


def register(architecture: Architecture) -> None:
    for name, known in (("ffn_rule", FFN_RULES), ("norm", tuple(NORMS)), ("positions", POSITIONS)):
        if getattr(architecture, name) not in known:
            raise ModelError(
                f"unknown {name} {getattr(architecture, name)!r}",
                f"architecture {architecture.name}",
                f"use one of {', '.join(known)}",
            )
    _register(_ARCHITECTURES, architecture, "variants")


def registered() -> dict[str, Architecture]:
    return dict(sorted(_ARCHITECTURES.items()))


def registered_layers() -> dict[str, LayerDescription]:
    return dict(sorted(_LAYERS.items()))


def find_architecture(name: str) -> Architecture:
    return _look_up(_ARCHITECTURES, name, "model variant")


def _register(table: dict[str, Any], entry: Any, what: str) -> None:
    """Registering the same entry twice is harmless; two different ones of the same name are refused."""
    known = table.setdefault(entry.name, entry)
    if known != entry:
        raise ModelError(f"two different {what} are called {entry.name!r}", "lmu_scaling.models", "rename one of them")


def _look_up(table: Mapping[str, Any], name: str, what: str) -> Any:
    if name in table:
        return table[name]
    close = difflib.get_close_matches(str(name), table, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ModelError(f"unknown {what} {name!r}", "lmu_scaling.models", f"{hint}known are {', '.join(sorted(table))}")
