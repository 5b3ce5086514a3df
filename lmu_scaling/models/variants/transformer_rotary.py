"""The GPT-2-style transformer of section 5 with rotary positions, and nothing else changed.

Learned positions cost tokens. This baseline, tuned like the others, shows how much of a difference is due to them.
"""

from lmu_scaling.models.architecture import Architecture, register

register(
    Architecture(
        name="transformer_rotary",
        label="Transformer, rotary",
        blocks=2,
        sublayers=("attention", "ffn"),
        positions="rotary",
        embedding_scale=50,
        residual_gain=0.5,
        ffn_rule="4d",
    )
)
