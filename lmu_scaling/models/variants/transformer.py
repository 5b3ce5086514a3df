"""The baseline of section 5: a GPT-2 style decoder, two layers so that N = 24 d²."""

from lmu_scaling.models.architecture import Architecture, register

register(
    Architecture(
        name="transformer",
        label="Transformer",
        blocks=2,
        sublayers=("attention", "ffn"),
        positions="learned",
        embedding_scale=50,
        residual_gain=0.5,
        ffn_rule="4d",
    )
)
