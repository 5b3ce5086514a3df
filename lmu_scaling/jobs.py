"""Jobs: the handlers behind `python -m lmu_scaling <job>` and behind the rules of the workflow.

A handler is a function decorated with `@job`; its name is the job's name and the rule's. Its signature is the only
declaration of the job: the command line (cli.py), the shell command of the rule (`command`) and the manifest follow
from it. Annotations say what a parameter is:

    Input, Inputs   a file, or files, that the job reads; hashed into its manifest
    Output          a file that the job writes; hashed into its manifest
    Folder          a folder; the rule names the files in it that are read or written
    anything else   a setting: text for `str` and `Path`, otherwise JSON (numbers, lists, pydantic models, dataclasses)

A parameter without a default is required; a positional-only one is given without its flag. The first line of the
docstring is the job's help, `Args:` has the help of each flag. Handlers are found in the source by their decorator, so
that a job pays for its own imports only.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from lmu_scaling.errors import ConfigError
from lmu_scaling.paths import PACKAGE

AFFECTS_RESULTS = False

Input = Annotated[Path, "input"]
Inputs = Annotated[list[Path], "input"]
Output = Annotated[Path, "output"]
Folder = Annotated[Path, "folder"]
SOURCES = {"Input": "input", "Inputs": "input", "Output": "output"}  # where a rule names such a parameter
Handler = TypeVar("Handler", bound=Callable[..., Any])


def job(handler: Handler) -> Handler:
    """Mark a function as the handler of a job; `jobs()` finds it in the source."""
    return handler


@dataclass(frozen=True)
class Parameter:
    """One parameter of a handler, as its source declares it."""

    name: str
    annotation: str
    required: bool
    positional: bool

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def source(self) -> str:
        """Which directive of a rule names it."""
        return SOURCES.get(self.annotation.partition(" ")[0], "params")


@dataclass(frozen=True)
class Job:
    """A handler and what its source says about it; nothing is imported until `load`."""

    name: str
    module: str
    function: str
    summary: str
    parameters: tuple[Parameter, ...]

    @property
    def stage(self) -> str:
        return self.module.split(".")[1]

    def is_positional(self, name: str) -> bool:
        return any(parameter.positional for parameter in self.parameters if parameter.name == name)

    def load(self) -> Callable[..., Any]:
        return getattr(importlib.import_module(self.module), self.function)


@functools.cache
def jobs() -> dict[str, Job]:
    """All jobs by name."""
    found: dict[str, Job] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        if re.search(r"^@job$", text, re.MULTILINE):
            module = ".".join(("lmu_scaling", *path.relative_to(PACKAGE).with_suffix("").parts))
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "job" for d in node.decorator_list):
                    entry = _describe(module, node)
                    if entry.name in found:
                        raise ConfigError(
                            f"two jobs are called {entry.name!r}",
                            f"{found[entry.name].module} and {module}",
                            "rename one of the handlers",
                        )
                    found[entry.name] = entry
    return found


def find(name: str) -> Job:
    known = jobs()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(f"there is no job {name!r}", "python -m lmu_scaling", f"{hint}known are {', '.join(known)}")
    return known[name]


def _describe(module: str, node: ast.FunctionDef) -> Job:
    arguments = node.args
    placed = [*arguments.posonlyargs, *arguments.args]
    required = [True] * (len(placed) - len(arguments.defaults)) + [False] * len(arguments.defaults)
    required += [default is None for default in arguments.kw_defaults]
    parameters = tuple(
        Parameter(arg.arg, ast.unparse(arg.annotation) if arg.annotation else "", needed, arg in arguments.posonlyargs)
        for arg, needed in zip([*placed, *arguments.kwonlyargs], required, strict=True)
    )
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    return Job(node.name.replace("_", "-"), module, node.name, summary, parameters)


def command(
    name: str,
    *optional: str,
    resources: tuple[str, ...] = (),
    outputs: str = "output",
    gpu: bool = False,
    tee: bool = True,
) -> str:
    """The shell command of a rule: one flag per required parameter and per `optional` or `resources` one.

    Placeholders are Snakemake's: the rule names each parameter in `input`, `output`, `params` or `resources` (`threads`
    is the rule's own); `outputs` is "params" for a rule without declared outputs. With `gpu` the job is started on the
    GPUs that the rule reserves. With `tee` the output is shown as well as logged.
    """
    entry = find(name)
    unknown = {*optional, *resources} - {parameter.name for parameter in entry.parameters}
    if unknown:
        raise ConfigError(f"job {name!r} has no parameter {', '.join(sorted(unknown))}", "workflow/rules", "correct it")
    start = "python -m lmu_scaling.training.launch {resources.gpu}" if gpu else "python -m lmu_scaling"
    words = [start, name]
    for parameter in entry.parameters:
        if not (parameter.required or parameter.name in {*optional, *resources}):
            continue
        source = "resources" if parameter.name in resources else parameter.source.replace("output", outputs)
        value = "{threads}" if parameter.name == "threads" else f"{{{source}.{parameter.name}:q}}"
        words.append(value if parameter.positional else f"{parameter.flag} {value}")
    if any(parameter.annotation.startswith("Folder") for parameter in entry.parameters):
        words.append("--read {input:q} --wrote {output:q}")
    words.append(f"--manifest {{{outputs}.manifest:q}} --code {{params.code}}")
    words.append("2>&1 | tee {log:q}" if tee else "> {log:q} 2>&1")
    return " ".join(words)


def own_python(executable: str) -> str:
    """Shell code after which `python` is this executable, even with an empty PATH."""
    folder = shlex.quote(str(Path(executable).parent))
    path = f"export PATH={folder}${{{{PATH:+:$PATH}}}}:/usr/local/bin:/usr/bin:/bin; "  # braces doubled for Snakemake
    if Path(executable).with_name("python").exists():
        return path
    return f'{path}python() {{{{ {shlex.quote(executable)} "$@"; }}}}; '  # Debian's own has no `python`
