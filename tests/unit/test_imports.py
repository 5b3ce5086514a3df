"""The import graph of the package: stages build on earlier stages only, and no two modules import each other.

Imports inside functions count, those under `if TYPE_CHECKING` do not. Modules that a registry loads by name (variants,
figures, handlers) are not imports: that is how a lower stage stays unaware of them.
"""

from __future__ import annotations

import ast
import graphlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lmu_scaling.paths import PACKAGE

# A module imports from lower levels, or from its own package; names on the same level are independent of each other.
LEVELS = (
    ("errors", "paths"),
    ("devices", "fields", "fingerprint", "jobs", "redaction", "runtime"),
    ("lock", "manifests"),
    ("healing", "records", "reuse"),
    ("cli",),
    ("corpus", "models"),
    ("sections", "spec"),
    ("counting", "experiment", "tokens"),
    ("evaluation", "training"),
    ("analysis", "export"),
    ("paper",),
    ("config",),
    ("planning",),
    ("audit",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}


class Import(NamedTuple):
    """`source` imports `target` in this line; both are dotted names below the package, "" is the package itself."""

    source: str
    target: str
    line: str


def modules(package: Path) -> dict[str, Path]:
    paths = {path.relative_to(package).with_suffix("").parts: path for path in sorted(package.rglob("*.py"))}
    return {".".join(p for p in parts if p != "__init__"): path for parts, path in paths.items()}


def imports(package: Path) -> list[Import]:
    known = modules(package)
    found = []
    for source, path in known.items():
        text = path.read_text("utf-8")
        for node in executed(ast.parse(text)):
            for target in targets(node, source, path, known):
                where = f"{package.name}/{path.relative_to(package)}:{node.lineno}"
                found.append(Import(source, target, f"{where}: {text.splitlines()[node.lineno - 1].strip()}"))
    return list(dict.fromkeys(found))


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from executed(other)
        else:
            yield node
            yield from executed(node)


def targets(node: ast.AST, source: str, path: Path, known: dict[str, Path]) -> list[str]:
    """Modules of the package that an import statement loads."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = ["lmu_scaling", *source.split(".")][: None if path.stem == "__init__" else -1]
            base = ".".join([*above[: len(above) - node.level + 1], *filter(None, [base])])
        names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
    else:
        return []
    own = [name.partition(".")[2] for name in names if name.split(".")[0] == "lmu_scaling"]
    return [name for name in own if name in known]


def back_edges(found: list[Import]) -> list[str]:
    """Imports of a higher level, or of another name on the same level."""
    wrong = []
    for entry in found:
        source, target = entry.source.partition(".")[0], entry.target.partition(".")[0]
        if source and target and source != target and LEVEL[target] >= LEVEL[source]:
            wrong.append(f"{source} must not import {target}: {entry.line}")
    return list(dict.fromkeys(wrong))


def cycle(found: list[Import]) -> list[str]:
    """The import lines of one cycle between modules; empty if there is none."""
    lines = {(entry.source, entry.target): entry.line for entry in found if entry.source != entry.target}
    graph: dict[str, set[str]] = {}
    for source, target in lines:
        graph.setdefault(source, set()).add(target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        names = error.args[1][::-1]  # each module of this list imports the next one
        return [lines[pair] for pair in itertools.pairwise(names)]
    return []


# ----------------------------------------------------------------------------------------------------------- package
def test_every_module_and_stage_has_a_level() -> None:
    names = {name.partition(".")[0] for name in modules(PACKAGE)} - {""}
    assert names == set(LEVEL)


def test_stages_import_lower_levels_only() -> None:
    wrong = back_edges(imports(PACKAGE))
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other() -> None:
    lines = cycle(imports(PACKAGE))
    assert not lines, "\n".join(lines)


def test_only_the_rehearsal_of_the_planning_stage_imports_training() -> None:
    found = imports(PACKAGE)
    trains = {entry.source for entry in found if entry.target.startswith("training") and "planning" in entry.source}
    assert trains <= {"planning.rehearsal"}


# -------------------------------------------------------------------------------------------------------- instrument
@pytest.mark.parametrize(
    ("module", "line", "blamed"),
    [
        ("models/legendre.py", "from lmu_scaling.audit.audit import examine", "models must not import audit"),
        ("models/legendre.py", "def f():\n    import lmu_scaling.planning.plan", "models must not import planning"),
        ("evaluation/evaluate.py", "from lmu_scaling.training import loop", "evaluation must not import training"),
        ("corpus/documents.py", "from ..tokens.store import TokenStore", "corpus must not import tokens"),
        ("jobs.py", "from lmu_scaling import manifests", "jobs must not import manifests"),
    ],
)
def test_a_planted_back_edge_is_named_with_its_line(module: str, line: str, blamed: str, tmp_path: Path) -> None:
    copy = tmp_path / "lmu_scaling"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / module).read_text("utf-8")
    (copy / module).write_text(f"{text}\n{line}\n", "utf-8")
    number, statement = len(f"{text}\n{line}".splitlines()), line.splitlines()[-1].strip()
    assert f"{blamed}: lmu_scaling/{module}:{number}: {statement}" in back_edges(imports(copy))


def test_a_planted_cycle_is_named_with_all_its_lines(tmp_path: Path) -> None:
    package = tmp_path / "lmu_scaling"
    for name, text in (
        ("__init__.py", ""),
        ("a.py", "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import lmu_scaling.c\n"),
        ("b.py", "from lmu_scaling.c import x\n"),
        ("c.py", "def f():\n    from lmu_scaling import a, d\n"),
        ("d.py", "from lmu_scaling import b\n"),
    ):
        package.mkdir(exist_ok=True)
        (package / name).write_text(text)
    assert sorted(cycle(imports(package))) == [
        "lmu_scaling/b.py:1: from lmu_scaling.c import x",
        "lmu_scaling/c.py:2: from lmu_scaling import a, d",
        "lmu_scaling/d.py:1: from lmu_scaling import b",
    ]
    (package / "d.py").write_text("")
    assert cycle(imports(package)) == []
