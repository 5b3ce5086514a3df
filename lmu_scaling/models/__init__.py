"""The models of the paper and their baselines, described without torch.

`variants()` lists them, `resolve()` makes a `ModelSpec`, and `lmu_scaling.models.network.build()` a network.
"""

from lmu_scaling.models.architecture import Architecture, ModelSpec, Row, register
from lmu_scaling.models.registry import architecture, variants
from lmu_scaling.models.sizes import resolve, width

__all__ = ["Architecture", "ModelSpec", "Row", "architecture", "register", "resolve", "variants", "width"]
