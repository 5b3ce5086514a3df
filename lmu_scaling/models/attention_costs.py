"""Parameters and FLOPs of global self-attention, for all layers of that kind. No torch."""

from __future__ import annotations

from lmu_scaling.models.architecture import ModelSpec, Row

PROJECTIONS, MIXING = "Attention projections", "Attention scores and values"


def attention_rows(spec: ModelSpec) -> tuple[Row, ...]:
    """With (n + 1)/2 keys per token, the average under a causal mask."""
    d, n = spec.d, spec.context
    return (
        Row(PROJECTIONS, "4d²", 4 * d * d, "8d²", 8 * d * d),
        Row(MIXING, "–", 0, "2d(n+1)", 2 * d * (n + 1)),
    )
