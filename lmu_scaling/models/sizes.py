"""All sizes of a model from its width: the rules of section 5 and of docs/deviations.md.

The paper fixes d = √(N/24), q' = q/10 and q = 250 at the largest size; the rules for the rest are here.
"""

from __future__ import annotations

import math
from typing import Any

from lmu_scaling.errors import ModelError
from lmu_scaling.models.architecture import NORMS, POSITIONS, Architecture, ModelSpec
from lmu_scaling.models.registry import architecture as find

PARAMETERS_PER_D2 = 24
Q_PER_D = 1.2255  # 250 at d = 204, the paper's largest model
Q_STEP = 10  # so that q' = q/10 is whole
TWO_HEADS_UP_TO = 92
SOFTMAX_SCALES = ("none", "sqrt_d")


def width(parameters: float) -> int:
    """d = √(N/24) (section 5), as a multiple of 4 so that heads divide it: 55k → 48, 1M → 204."""
    return max(4, 4 * round(math.sqrt(parameters / PARAMETERS_PER_D2) / 4))


def order(d: int) -> int:
    """q grows with d; a constant 250 would alone exceed N at d = 48."""
    return max(Q_STEP, Q_STEP * round(Q_PER_D * d / Q_STEP))


def exact_parameters(architecture: Architecture, spec: ModelSpec) -> int:
    """N: all trainable parameters but embedding and positions, norms and biases included."""
    layers = spec.blocks * sum(layer.parameters(spec) for layer in architecture.layers)
    norms = spec.blocks * len(architecture.sublayers) + 1
    return layers + norms * NORMS[architecture.norm] * spec.d


def solve_ffn(architecture: Architecture, spec: ModelSpec) -> int:
    """The integer d' that brings exact N nearest to 24 d²; N is linear in d'."""
    target = PARAMETERS_PER_D2 * spec.d**2

    def parameters(ffn: int) -> int:
        return exact_parameters(architecture, _with(spec, ffn=ffn))

    slope = parameters(2) - parameters(1)
    near = (target - parameters(0)) / slope
    if near < 0.5:
        raise ModelError(
            f"no FFN fits: without any, N = {parameters(0):,} is already near or above 24 d² = {target:,}",
            f"model {spec.variant}, d = {spec.d}, blocks = {spec.blocks}, q = {spec.q}",
            "use fewer blocks, a smaller q, a larger d, or set ffn yourself",
        )
    return min(max(1, math.floor(near)), math.ceil(near), key=lambda ffn: abs(parameters(ffn) - target))


def resolve(
    variant: str,
    d: int,
    context: int,
    vocab: int,
    *,
    blocks: int | None = None,
    ffn: int | None = None,
    heads: int | None = None,
    q: int | None = None,
    q_reduced: int | None = None,
    theta: int | float | None = None,
    theta_per_q: float = 4,
    softmax_scale: str = "none",
    dropout: float = 0.0,
    positions: str | None = None,
    embedding_scale: float | None = None,
    residual_gain: float | None = None,
) -> ModelSpec:
    """Fill in every size and setting that is not given. Settings that the variant's layers do not use are dropped."""
    arch = find(variant)
    used = arch.fields
    where = f"model {variant}, d = {d}"
    _check_common(where, d=d, context=context, vocab=vocab, dropout=dropout, softmax_scale=softmax_scale)
    values: dict[str, Any] = {"blocks": arch.blocks if blocks is None else blocks}
    if "activation" in used:
        values["activation"] = "gelu"
    if "heads" in used:
        values["heads"] = (2 if d <= TWO_HEADS_UP_TO else 4) if heads is None else heads
    if "q" in used:
        values |= _memory(d, q, q_reduced, theta, theta_per_q) | {"softmax_scale": softmax_scale}
    _check_whole(where, values | ({} if ffn is None or "ffn" not in used else {"ffn": ffn}))
    _check_memory_and_heads(where, d, values)
    values |= {
        "positions": arch.positions if positions is None else positions,
        "embedding_scale": float(arch.embedding_scale if embedding_scale is None else embedding_scale),
        "residual_gain": float(arch.residual_gain if residual_gain is None else residual_gain),
    }
    _check_input(where, values)
    spec = ModelSpec(variant, d, context, vocab, dropout=float(dropout), **values)
    if "ffn" in used:
        rule = {"solve": lambda: solve_ffn(arch, spec), "4d": lambda: 4 * d}
        spec = _with(spec, ffn=rule[arch.ffn_rule]() if ffn is None else ffn)
    return spec


def _memory(
    d: int, q: int | None, q_reduced: int | None, theta: int | float | None, theta_per_q: float
) -> dict[str, Any]:
    q = order(d) if q is None else q
    window = theta_per_q * q if theta is None else theta
    return {
        "q": q,
        "q_reduced": max(1, q // 10) if q_reduced is None else q_reduced,
        "theta": int(window) if math.isfinite(window) and window == int(window) else float(window),
    }


def _check_common(where: str, *, d: int, context: int, vocab: int, dropout: float, softmax_scale: str) -> None:
    _check_whole(where, {"d": d, "context": context, "vocab": vocab})
    if not 0 <= dropout < 1:
        raise ModelError(f"dropout must lie in [0, 1), not {dropout}", where, "0 is the paper's")
    if softmax_scale not in SOFTMAX_SCALES:
        raise ModelError(f"unknown softmax_scale {softmax_scale!r}", where, f"use one of {', '.join(SOFTMAX_SCALES)}")


def _check_whole(where: str, values: dict[str, Any]) -> None:
    for name in ("d", "context", "vocab", "blocks", "ffn", "heads", "q", "q_reduced"):
        value = values.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(
                f"{name} must be a whole number of at least 1, not {value!r}", where, f"set another {name}"
            )


def _check_memory_and_heads(where: str, d: int, values: dict[str, Any]) -> None:
    q, theta, heads = values.get("q"), values.get("theta", math.inf), values.get("heads")
    if q is not None and not q <= theta < math.inf:
        raise ModelError(
            f"q = {q} exceeds theta = {theta}: a window of theta tokens has no more than theta degrees of freedom",
            where,
            "use a larger theta (the default is 4 q) or a smaller q",
        )
    if q is not None and values["q_reduced"] > q:
        raise ModelError(f"q' = {values['q_reduced']} exceeds q = {q}", where, "use q' = q/10, as the paper does")
    if heads is not None and d % heads:
        raise ModelError(f"d = {d} is not divisible by heads = {heads}", where, "change d or heads")


def _check_input(where: str, values: dict[str, Any]) -> None:
    """Positions, embedding scale and residual gain."""
    positions, heads = values["positions"], values.get("heads")
    if positions not in POSITIONS:
        raise ModelError(f"unknown positions {positions!r}", where, f"use one of {', '.join(POSITIONS)}")
    if positions == "rotary" and heads is None:
        raise ModelError(
            "rotary positions need global attention, which this variant has not", where, "use positions none or learned"
        )
    for name in ("embedding_scale", "residual_gain"):
        if not 0 < values[name] < math.inf:
            raise ModelError(f"{name} must be positive and finite, not {values[name]}", where, f"set another {name}")


def _with(spec: ModelSpec, **changes: Any) -> ModelSpec:
    return ModelSpec(**(spec.asdict() | changes))
