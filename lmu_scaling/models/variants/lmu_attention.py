"""The paper's second model (section 4, "Global Self-Attention"): attention in place of the FFN before the LMU.

The attention of the first block sees the tokens before any LMU has encoded their order. The paper is silent on
positions; rotary ones gain 0.09 nats on validation (docs/log.md).
"""

from lmu_scaling.models.architecture import Architecture, register

register(
    Architecture(
        name="lmu_attention",
        label="LMU + attention",
        blocks=3,
        sublayers=("attention", "lmu", "ffn"),
        positions="rotary",
        embedding_scale=50,
        residual_gain=0.5,
    )
)
