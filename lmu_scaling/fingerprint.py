"""Hashes of source code that change when a result may change, so that an edit reruns the jobs it concerns.

A fingerprint covers a module and everything it imports from this package. It ignores what cannot change a number:

* comments, docstrings and formatting;
* descriptions of settings (`description=…`);
* messages: `print(…)`, `warnings.warn(…)`, calls of a method `say` or `log`, and the arguments of raised exceptions;
* modules that declare `AFFECTS_RESULTS = False` at top level (progress, error classes, manifests, command line).

C sources count with the module that lists them in `C_SOURCES`. Layers and variants are loaded by name and are therefore
not imports; the rules add the ones that a run uses (`Architecture.modules`).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lmu_scaling.paths import REPOSITORY

AFFECTS_RESULTS = False
MESSAGES = re.compile(r"print|warnings\.warn|.*\.(say|log)")


@functools.cache
def fingerprint(*modules: str) -> str:
    """Hash of these modules and of all they import from this package."""
    lines = [f"{module}={_module_hash(module)}\n" for module in sorted(reachable(*modules))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def module_hashes(modules: Iterable[str]) -> dict[str, str]:
    """One short hash per module, so that a result can name those that changed since it was made."""
    names = sorted(name for name in set(modules) if _file(name) and _affects_results(name))
    return {name.removeprefix("lmu_scaling."): _module_hash(name)[:12] for name in names}


def reachable(*modules: str) -> set[str]:
    """The modules and their imports within the package, found statically, without those that affect no result."""
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module in seen or not _affects_results(module):
            continue
        seen.add(module)
        parent = module.rpartition(".")[0]
        todo += [parent] if parent else []
        todo += _imports(module)
    return seen


def _file(module: str) -> Path | None:
    path = REPOSITORY.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@functools.cache
def _tree(module: str) -> ast.Module:
    path = _file(module)
    if path is None:
        raise ModuleNotFoundError(module)
    return ast.parse(path.read_text("utf-8"))


def _literal(module: str, name: str, default: Any) -> Any:
    """The value of a top-level assignment `name = <literal>`."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    return default


def _affects_results(module: str) -> bool:
    return bool(_literal(module, "AFFECTS_RESULTS", True))


@functools.cache
def _module_hash(module: str) -> str:
    tree = _WithoutMessages().visit(ast.parse(ast.unparse(_tree(module))))  # on a copy
    parts = [ast.unparse(tree)]  # unlike ast.dump, stable across Python versions
    for name in _literal(module, "C_SOURCES", ()):
        code = ((_file(module) or REPOSITORY).parent / name).read_text("utf-8")
        parts.append(" ".join(re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.DOTALL).split()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class _WithoutMessages(ast.NodeTransformer):
    """Removes docstrings, descriptions and messages."""

    def visit(self, node: ast.AST) -> Any:
        node = super().visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        value = node.value
        if isinstance(value, ast.Constant) or (
            isinstance(value, ast.Call) and MESSAGES.fullmatch(ast.unparse(value.func))
        ):
            return None
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        return node


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    path = _file(module)
    package = module if path and path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    for node in _executed(_tree(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(name for name in found if name.startswith("lmu_scaling") and _file(name))


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed(node)
