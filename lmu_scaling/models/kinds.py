"""The paper's layers and the baselines' as countable kinds (Table 2, per token, forward pass).

FLOPs follow the paper's convention: a multiply–add is two, element-wise functions are not counted. Table 2 lists one
FFN although an LMU block has two; here each sub-layer is a row of its own, so that the sum is right.
"""

from __future__ import annotations

import math

from lmu_scaling.models.architecture import LayerKind, ModelSpec, Row, register_kind


def fft_flops_per_token(n: int) -> float:
    """C(2n)/n of the appendix for a real signal: half of 10 (log₂ n + 1)."""
    return 5 * (math.log2(n) + 1)


def qkv_flops(d: int, q: int, q_reduced: int, n: int) -> int:
    """Table 2, first row: LMU + Q + K + V in reduced order."""
    return round(3 * d * (fft_flops_per_token(n) * (q_reduced + 1) + 6 * q_reduced) + 6 * q * q_reduced)


def _ffn_rows(s: ModelSpec) -> tuple[Row, ...]:
    assert s.ffn is not None
    return (Row("FFN", "2dd'", 2 * s.d * s.ffn, "4dd'", 4 * s.d * s.ffn),)


def _ffn_parameters(s: ModelSpec) -> int:
    assert s.ffn is not None
    return 2 * s.d * s.ffn + s.ffn + s.d


def _lmu_rows(s: ModelSpec) -> tuple[Row, ...]:
    assert s.q is not None
    assert s.q_reduced is not None
    d, q, r, n = s.d, s.q, s.q_reduced, s.context
    qkv = "3d[5(q'+1)(log₂n+1)+6q'] + 6qq'"
    return (
        Row("LMU + Q + K + V", "3qq'", 3 * q * r, qkv, qkv_flops(d, q, r, n)),
        Row("QKᵀ", "–", 0, "2dq'²", 2 * d * r * r),
        Row("M'", "–", 0, "2dq'² + dq'", 2 * d * r * r + d * r),
        Row("m", "q'", r, "2dq'", 2 * d * r),
    )


def _lmu_parameters(s: ModelSpec) -> int:
    assert s.q is not None
    assert s.q_reduced is not None
    return 3 * s.q * s.q_reduced + 3 * s.q_reduced + s.q_reduced


def _attention_rows(s: ModelSpec) -> tuple[Row, ...]:
    """A causal row has (n + 1)/2 keys on average."""
    d, n = s.d, s.context
    return (
        Row("Attention projections", "4d²", 4 * d * d, "8d²", 8 * d * d),
        Row("Attention scores and values", "–", 0, "2d(n+1)", 2 * d * (n + 1)),
    )


def _lstm_rows(s: ModelSpec) -> tuple[Row, ...]:
    return (Row("LSTM gates", "8d²", 8 * s.d * s.d, "16d²", 16 * s.d * s.d),)


register_kind(
    LayerKind(
        name="ffn",
        fields=("ffn", "activation"),
        parameters=_ffn_parameters,
        rows=_ffn_rows,
        held=lambda s: s.d + 2 * (s.ffn or 0),
        builder="lmu_scaling.models.layers:FeedForward",
    )
)
register_kind(
    LayerKind(
        name="lmu",
        fields=("q", "q_reduced", "theta", "softmax_scale", "activation"),
        parameters=_lmu_parameters,
        rows=_lmu_rows,
        held=lambda s: (3 * (s.q_reduced or 0) + 2) * s.d,
        builder="lmu_scaling.models.layers:LMU",
    )
)
register_kind(
    LayerKind(
        name="attention",
        fields=("heads",),
        parameters=lambda s: 4 * s.d * s.d + 4 * s.d,
        rows=_attention_rows,
        held=lambda s: 5 * s.d + (s.heads or 0),
        builder="lmu_scaling.models.layers:GlobalAttention",
    )
)
register_kind(
    LayerKind(
        name="lstm",
        fields=(),
        parameters=lambda s: 8 * s.d * s.d + 8 * s.d,
        rows=_lstm_rows,
        held=lambda s: 6 * s.d,
        builder="lmu_scaling.models.layers:LSTM",
    )
)
