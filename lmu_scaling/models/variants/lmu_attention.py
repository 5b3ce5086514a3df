"""The paper's second model (section 4, "Global Self-Attention"): attention in place of the FFN before the LMU."""

from lmu_scaling.models.architecture import Architecture, register

register(Architecture(name="lmu_attention", label="LMU + attention", blocks=3, sublayers=("attention", "lmu", "ffn")))
