"""The baseline that readers compare with today: rotary positions, RMSNorm, gated FFN, normalised queries and keys.

Two layers without biases, and the FFN's width solved so that N = 24 d² by the same rule as for every variant.
"""

from lmu_scaling.models.architecture import Architecture, register

register(
    Architecture(
        name="transformer_modern",
        label="Modern transformer",
        blocks=2,
        sublayers=("attention_qk_norm", "ffn_gated"),
        norm="rms",
        positions="rotary",
        embedding_scale=50,
        residual_gain=0.5,
    )
)
