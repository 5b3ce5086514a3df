"""The registry of layers and variants, which are found by their files in `layers/` and `variants/`. No torch.

A file is loaded up to its first import of torch, which registers the description; the torch class below it is imported
when a network is built.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import pkgutil
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

import lmu_scaling.models.layers as _layers
import lmu_scaling.models.variants as _variants
from lmu_scaling.errors import ModelError
from lmu_scaling.models.architecture import Architecture, find_architecture, registered, registered_layers

NEEDS_TORCH = ("torch", "lmu_scaling.models.layer")


def variants() -> list[str]:
    """Names of all variants, in alphabetical order."""
    _discover()
    return list(registered())


def architecture(name: str) -> Architecture:
    _discover()
    return find_architecture(name)


@functools.cache
def _discover() -> None:
    for module in _modules(_layers):
        path = _load_description(module)
        if not any(layer.module == module for layer in registered_layers().values()):
            raise ModelError(
                "this file registers no layer before its first import of torch",
                path,
                'call register_layer(LayerDescription(…, builder=f"{__name__}:Class")) above that import',
            )
    for module in _modules(_variants):
        before, name = set(registered()), module.rpartition(".")[2]
        path = _load_description(module)
        if set(registered()) != before | {name}:
            raise ModelError(
                f"this file must register one variant, called {name!r} like the file, before any import of torch",
                path,
                "rename the file or the variant: an edit of a variant's file retrains the variant of that name",
            )


def _modules(package: ModuleType) -> list[str]:
    return sorted(f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__))


class _DescriptionLoader(SourceFileLoader):
    """Imports a module of this package up to its first import of torch. Caches no bytecode: the module is not whole."""

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        tree.body = list(itertools.takewhile(lambda statement: not _imports_torch(statement), tree.body))
        return self.source_to_code(tree, self.path)


def _load_description(module: str) -> str:
    """Register what a layer's or variant's file describes; returns the file."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    _DescriptionLoader(module, spec.origin).exec_module(importlib.util.module_from_spec(spec))
    return spec.origin


def _imports_torch(statement: ast.stmt) -> bool:
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
    names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
    return any(name == root or name.startswith(f"{root}.") for name in names for root in NEEDS_TORCH)
