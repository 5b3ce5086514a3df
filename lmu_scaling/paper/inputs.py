"""List figures and tables and the results that each one reads, without importing them.

The Snakefile imports this module, so it must be quick: no Matplotlib, no pandas; the source is parsed instead.
"""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from lmu_scaling.errors import ConfigError
from lmu_scaling.paths import PACKAGE

FOLDERS = {"figure": "figures", "table": "tables", "figures": "figures", "tables": "tables"}
HERE = PACKAGE / "paper"


def modules(kind: str) -> list[str]:
    """Names of all figures or of all tables, in alphabetical order."""
    return sorted(path.stem for path in (HERE / FOLDERS[kind]).glob("*.py") if not path.stem.startswith("_"))


def inputs_of(kind: str, name: str) -> tuple[str, ...]:
    """`INPUTS` of a module: paths relative to `results/<experiment>/`."""
    path = HERE / FOLDERS[kind] / f"{name}.py"
    known = modules(kind)
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        what = FOLDERS[kind]
        raise ConfigError(f"no {what[:-1]} is called {name!r}", f"paper.{what}", f"{hint}known are {', '.join(known)}")
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "INPUTS" for target in targets):
            return _literal(getattr(node, "value", None), path)
    raise _unreadable(path)


def _literal(value: ast.expr | None, path: Path) -> tuple[str, ...]:
    try:
        found = ast.literal_eval(value) if value is not None else None
    except ValueError as error:
        raise _unreadable(path) from error
    if not isinstance(found, tuple) or not all(isinstance(entry, str) for entry in found):
        raise _unreadable(path)
    return found


def _unreadable(path: Path) -> ConfigError:
    return ConfigError(
        "INPUTS must be a literal tuple of strings",
        f"lmu_scaling/paper/{path.parent.name}/{path.name}",
        'write for example INPUTS = ("analysis/runs.csv",)',
    )
