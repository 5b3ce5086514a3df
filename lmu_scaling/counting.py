"""How large and how costly a model is: exact N, Kaplan's N, FLOPs per token (Table 2 and appendix A.2). No torch.

Two slips of the paper are corrected here, and kept as named literal readings in `paper_slips`:

* the appendix writes 3[d·L_FFT(q') + 2qq'] although L_FFT already has the factor d; Table 2's first row is right;
* L_FFT as derived has C(2n)/n = 10(log₂n + 1); its printed result, 5(log₂n + 1), needs the factor ½ of a real FFT.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from lmu_scaling.errors import ModelError
from lmu_scaling.models import ModelSpec, Row, architecture
from lmu_scaling.models.kinds import fft_flops_per_token, qkv_flops
from lmu_scaling.models.sizes import exact_parameters

IMPLEMENTATIONS = ("state_space", "runge_kutta", "fft")
BYTES = 4  # float32


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
    """Estimate of what training holds between forward and backward, per token, without the loss."""
    rows: tuple[CountedRow, ...]

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def count(spec: ModelSpec) -> Counts:
    arch = architecture(spec.variant)
    rows = tuple(CountedRow(kind.name, spec.blocks, row) for kind in arch.kinds for row in kind.rows(spec))
    n_exact = exact_parameters(arch, spec)
    n_embedding = spec.vocab * spec.d
    n_positions = spec.context * spec.d if arch.positions else 0
    body = sum(counted.repeats * counted.row.flops for counted in rows)
    head = 2 * spec.d * spec.vocab
    norm = 2 * spec.d
    held = spec.blocks * sum(kind.held(spec) + norm for kind in arch.kinds) + norm
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
        activation_bytes=BYTES * held,
        rows=rows,
    )


def lmu_flops(implementation: str, d: int, q: int, n: int, r: int = 4) -> int:
    """FLOPs per token of the memory alone, in the appendix's three implementations; r is the Runge–Kutta order."""
    if implementation == "state_space":
        return 2 * d * (q * q + q)
    if implementation == "runge_kutta":
        return 6 * r * d * q
    if implementation == "fft":
        return round(d * (fft_flops_per_token(n) * (q + 1) + 6 * q))
    raise ModelError(
        f"unknown LMU implementation {implementation!r}", "lmu_flops", f"use one of {', '.join(IMPLEMENTATIONS)}"
    )


def lmu_qkv_flops(d: int, q: int, q_reduced: int, n: int) -> int:
    """Table 2, first row: 1,004,460 at the paper's largest model."""
    return qkv_flops(d, q, q_reduced, n)


def paper_slips(d: int, q: int, q_reduced: int, n: int) -> dict[str, dict[str, Any]]:
    """The two formulas that cannot be taken literally: what they say, and what is right."""
    literal_fft = round(d * (10 * (math.log2(n) + 1) * (q + 1) + 6 * q))
    return {
        "appendix_counts_d_twice": {
            "where": "appendix A.1, 3[d·L_FFT(q') + 2qq']",
            "literal": 3 * (d * lmu_flops("fft", d, q_reduced, n) + 2 * q * q_reduced),
            "corrected": lmu_qkv_flops(d, q, q_reduced, n),
        },
        "complex_fft_for_real_signals": {
            "where": "appendix A.2, L_FFT with C(n) = 5n log₂n",
            "literal": literal_fft,
            "corrected": lmu_flops("fft", d, q, n),
        },
    }
