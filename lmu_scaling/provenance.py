"""Which code a result comes from: fingerprints of meaning (manifests are in `manifests.py`).

A fingerprint covers a module and everything it imports from this package, as syntax trees without docstrings and
comments: an edit that changes meaning changes it, an edit that does not never retrains a model.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
REPOSITORY = PACKAGE.parent
# Messages, progress bars and manifests cannot change a number, so an edit there reruns nothing.
WITHOUT_INFLUENCE = {
    f"lmu_scaling.{name}"
    for name in (
        *("errors", "runtime", "provenance", "manifests", "redaction", "config", "sections"),
        *("cli", "verbs", "__main__"),
    )
}


# ----------------------------------------------------------------------------------------------------- fingerprints
@functools.cache
def fingerprint(*modules: str) -> str:
    """Hash of the meaning of these modules and of all they import from this package."""
    digest = hashlib.sha256()
    for module in sorted(reachable(*modules)):
        digest.update(f"{module}={_meaning(module)}\n".encode())
    return digest.hexdigest()[:16]


def meanings(modules: Iterable[str]) -> dict[str, str]:
    """One short hash per module, so that a result can say which of them changed since it was made."""
    names = sorted(name for name in set(modules) - WITHOUT_INFLUENCE if _file(name))
    return {name.removeprefix("lmu_scaling."): _meaning(name)[:12] for name in names}


def reachable(*modules: str) -> set[str]:
    """The modules themselves and their imports within the package, followed statically."""
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module in seen or module in WITHOUT_INFLUENCE:
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


@functools.cache
def _meaning(module: str) -> str:
    tree = ast.parse(ast.unparse(_tree(module)))  # a copy: docstrings are cut out of it
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    text = ast.unparse(tree)  # unlike ast.dump, stable across Python versions
    return hashlib.sha256((text + _c_meaning(module, tree)).encode()).hexdigest()


def _c_meaning(module: str, tree: ast.Module) -> str:
    """C sources in the folder that the module names in a literal `C_SOURCES`, without comments and spacing."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "C_SOURCES" for t in node.targets):
            folder = (_file(module) or PACKAGE).with_name(str(ast.literal_eval(node.value)))
            for path in sorted(folder.glob("*.[ch]")):
                code = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text("utf-8"), flags=re.DOTALL)
                found.append(f"{path.name}: {' '.join(code.split())}")
    return "\n".join(found)


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
