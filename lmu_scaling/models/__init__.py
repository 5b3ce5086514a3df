"""The models of the paper and their baselines: a registry that needs no torch.

`variants()` lists them, `resolve()` makes a `ModelSpec`, and `lmu_scaling.models.network.build()` makes it a network.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from lmu_scaling.models import kinds as _kinds  # noqa: F401 (its import registers the layer kinds)
from lmu_scaling.models import variants as _variants
from lmu_scaling.models.architecture import (
    Architecture,
    LayerKind,
    ModelSpec,
    Row,
    find_architecture,
    layer_kind,
    register,
    register_kind,
    registered,
)
from lmu_scaling.models.sizes import resolve, width

__all__ = [
    "Architecture",
    "LayerKind",
    "ModelSpec",
    "Row",
    "architecture",
    "layer_kind",
    "register",
    "register_kind",
    "resolve",
    "variants",
    "width",
]


@functools.cache
def _discover() -> None:
    for module in sorted(pkgutil.iter_modules(_variants.__path__), key=lambda module: module.name):
        importlib.import_module(f"{_variants.__name__}.{module.name}")


def variants() -> list[str]:
    """Names of all variants, in alphabetical order."""
    _discover()
    return list(registered())


def architecture(name: str) -> Architecture:
    _discover()
    return find_architecture(name)
