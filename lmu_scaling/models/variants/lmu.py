"""The paper's model (section 4): FFN, LMU with implicit self-attention, FFN."""

from lmu_scaling.models.architecture import Architecture, register

register(Architecture(name="lmu", label="LMU", blocks=3, sublayers=("ffn", "lmu", "ffn"), embedding_scale=7))
