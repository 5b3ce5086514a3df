"""Parameters, FLOPs per token and activation memory of a model, from its layers' descriptions (Table 2). No torch.

Table 2 lists one FFN although an LMU block has two; here each sub-layer has its own rows, so that the sum is right.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from lmu_scaling.models import ModelSpec, Row, architecture
from lmu_scaling.models.architecture import GPUWork
from lmu_scaling.models.chunks import OWN_KERNEL, padded, parts
from lmu_scaling.models.sizes import exact_parameters

BYTES = 4  # float32
# Weights, gradients and Adam's two moments, float32.
STATE_BYTES = 16
# The loss computes logits for one chunk of tokens at a time; memory holds them twice, with their gradient.
LOSS_TOKENS = 512
# On a GPU, for each number that training keeps: bytes held, and bytes moved (counted: 1.9 to 2.2, and 20).
GPU_HELD, GPU_MOVED = 2.2, 20
# Bytes of work space for each number that the largest layer keeps: its gradient, and what becomes of it.
GPU_WORKSPACE = 3
# The head's kernels compute four products, the logits twice, and move about 100 bytes per channel.
HEAD_PRODUCTS, HEAD_MOVED = 4, 100


@dataclass(frozen=True)
class CountedRow:
    """A row of Table 2, how often it occurs in the model, and the sub-layer it belongs to."""

    layer: str
    repeats: int
    row: Row


@dataclass(frozen=True)
class Counts:
    """Parameters, and FLOPs per token; a training step costs three forward passes."""

    n_exact: int
    """Trainable, non-embedding, with LayerNorms and biases: the paper's N."""
    n_kaplan: int
    """Matrices only, as Kaplan et al. count."""
    n_embedding: int
    n_positions: int
    n_total: int
    flops_forward: int
    """Non-embedding, per token."""
    flops_head: int
    flops_with_head: int
    flops_training: int
    """Forward and backward, with the head, per token."""
    flops_training_body: int
    activation_bytes: int
    """Estimate of the memory that training keeps between forward and backward, per token, without the loss."""
    rows: tuple[CountedRow, ...]

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that training needs: weights, gradients and Adam's moments; the loss; each sequence of a micro-batch."""

    state: int
    loss: int
    sequence: int

    def total(self, micro_batch: int) -> int:
        return self.state + self.loss + micro_batch * self.sequence

    def micro_batch(self, batch: int, memory: float) -> int:
        """Sequences per forward pass that fit into `memory` bytes, found by halving as the trainer does; 0 if none."""
        size = batch
        while size > 1 and self.total(size) > memory:
            size = math.ceil(size / 2)
        return size if self.total(size) <= memory else 0


def count(spec: ModelSpec) -> Counts:
    arch = architecture(spec.variant)
    rows = tuple(CountedRow(layer.name, spec.blocks, row) for layer in arch.layers for row in layer.rows(spec))
    n_exact = exact_parameters(arch, spec)
    n_embedding = spec.vocab * spec.d
    n_positions = spec.context * spec.d if spec.positions == "learned" else 0
    body = sum(counted.repeats * counted.row.flops for counted in rows)
    head = 2 * spec.d * spec.vocab
    norm = 2 * spec.d
    activations = spec.blocks * sum(layer.activations(spec) + norm for layer in arch.layers) + norm
    return Counts(
        n_exact=n_exact,
        n_kaplan=sum(counted.repeats * counted.row.parameters for counted in rows),
        n_embedding=n_embedding,
        n_positions=n_positions,
        n_total=n_exact + n_embedding + n_positions,
        flops_forward=body,
        flops_head=head,
        flops_with_head=body + head,
        flops_training=3 * (body + head),
        flops_training_body=3 * body,
        activation_bytes=BYTES * activations,
        rows=rows,
    )


def training_memory(spec: ModelSpec, gpu: bool) -> TrainingMemory:
    """On a GPU activations are bfloat16, and the backward pass of the largest layer needs work space."""
    counts = count(spec)
    held = float(counts.activation_bytes)
    if gpu:
        largest = max(layer.activations(spec) for layer in architecture(spec.variant).layers)
        held = GPU_HELD * held / BYTES + GPU_WORKSPACE * largest
    return TrainingMemory(
        state=STATE_BYTES * counts.n_total,
        loss=2 * BYTES * LOSS_TOKENS * spec.vocab,
        sequence=int(spec.context * held),
    )


def gpu_work(spec: ModelSpec) -> GPUWork:
    """Training of one token on a GPU: body and head."""
    norm = GPUWork(0, GPU_MOVED * 2 * spec.d)
    total = norm
    for layer in architecture(spec.variant).layers:
        if layer.gpu:
            work = layer.gpu(spec) + GPUWork(0, GPU_MOVED * 2 * spec.d)  # its input and output
        else:
            work = GPUWork(3 * sum(row.flops for row in layer.rows(spec)), GPU_MOVED * layer.activations(spec))
        for _ in range(spec.blocks):
            total += work + norm
    flops = HEAD_PRODUCTS * 2 * sum(parts(padded(spec.d))) * spec.vocab
    return total + GPUWork(flops / OWN_KERNEL, HEAD_MOVED * spec.d)
