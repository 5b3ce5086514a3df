"""Results made again: each job runs once more on the inputs it has recorded, and its outputs are compared byte by byte.

A manifest holds the command of its job. Here the same handler gets the same settings, the files of the folder under
audit as inputs, and a scratch folder for its outputs. If every job agrees, everything follows from what no job made
again: tokens, weights and measured times. Nothing here knows a particular job: one that is new is covered.

A manifest can claim anything. Its settings must therefore follow from config.json, its inputs must be in the folder,
and whatever excuses a difference (other code, another machine) makes the audit partial instead of sound.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from lmu_scaling import cli
from lmu_scaling.audit.checksums import shards
from lmu_scaling.audit.comparison import Difference, compare
from lmu_scaling.audit.results_folder import FIGURES, Finding, ResultsFolder
from lmu_scaling.audit.settings import disagreements
from lmu_scaling.errors import UserError
from lmu_scaling.fingerprint import module_hashes
from lmu_scaling.jobs import Job, jobs
from lmu_scaling.manifests import environment

# Jobs that are not made again here: they measure, take hours, or have temporary inputs (retokenize.py repeats those).
ON_TRUST = ("fetch", "encode", "deduplicate", "shard", "train", "complexity")
NO_RESULT = ("audit", "bundle", "plan")
CHEAP = ("table", "fit", "claims", "paper-table")
SAME_MACHINE = ("python", "system", "cpu", "gpu", "packages")
# Allowed differences between machines: losses in nats by precision, all other numbers relative.
LOSSES = {"evaluate": 2e-4}
NUMBERS = 1e-6


class NotHere(Exception):
    """A file that the job needs is not in the folder, or belongs to another experiment."""


def chosen(folder: ResultsFolder, full: bool, retrain: Collection[str]) -> list[str]:
    """The manifests whose jobs are made again, inputs before outputs as far as stages tell."""
    known = jobs()
    found = []
    for name, manifest in folder.manifests.items():
        job = manifest.get("job")
        repeated = job in known and job not in (*ON_TRUST, *NO_RESULT) and (full or job in CHEAP)
        if repeated or (job == "train" and name.split("/")[1] in retrain):
            found.append(name)
    return found


def replays(folder: ResultsFolder, full: bool = False, retrain: Collection[str] = ()) -> Iterator[Finding]:
    """Make results again and compare them."""
    for name in chosen(folder, full, retrain):
        yield from replay(folder, name)
    for run in sorted(set(retrain) - trained(folder)):
        yield Finding("replay", f"training/{run}", "this run cannot be trained again: it has no manifest", "unseen")


def trained(folder: ResultsFolder) -> set[str]:
    """The runs whose training has left a manifest."""
    return {name.split("/")[1] for name, manifest in folder.manifests.items() if manifest.get("job") == "train"}


def replay(folder: ResultsFolder, name: str) -> Iterator[Finding]:
    """Make the outputs of one manifest again."""
    manifest = folder.manifests[name]
    entry = jobs()[manifest["job"]]
    try:
        needed = [n for n in _inputs(folder, name) if n]
        if "tokens/index.json" in needed and entry.stage in ("training", "evaluation"):
            needed += shards(folder)
        if missing := [n for n in needed if n not in folder.files]:
            raise NotHere(missing[0])
        with tempfile.TemporaryDirectory() as scratch:
            yield from _run(folder, name, entry, Path(scratch))
    except NotHere as error:
        yield Finding("replay", name, f"not made again: {error} is not in this folder", "unseen")
    except (UserError, Exception, SystemExit) as error:  # what a forged or damaged file makes a job raise is open
        reason = error.what if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        yield excused(folder, name, Finding("replay", name, f"its job does not run on its inputs: {reason}"))


def _inputs(folder: ResultsFolder, name: str) -> list[str | None]:
    groups = folder.manifests[name]["inputs"].values()
    return [folder.name_of(entry, name) for entries in groups for entry in entries if not entry.get("in")]


def _run(folder: ResultsFolder, name: str, entry: Job, scratch: Path) -> Iterator[Finding]:
    manifest = folder.manifests[name]
    handler = entry.load()
    arguments, hints = cli.arguments_of(entry, handler, manifest["command"][3:])
    made: dict[str, Path] = {}
    for key, value in arguments.items():
        role = cli.role(hints[key])
        if role == "output" and value is not None:
            original = _named(folder, value)
            made[original] = arguments[key] = scratch / key / Path(value).name
        elif key == "live":
            arguments[key] = scratch / key
        elif role:
            arguments[key] = _located(folder, entry, handler, key, value)
    yield from disagreements(folder, name, entry, arguments, hints, list(made))
    if entry.name == "train":
        arguments["code"] = manifest["code"]
    call(entry, handler, arguments)
    listed = [folder.name_of(e, name) for entries in manifest["outputs"].values() for e in entries]
    for output in listed:
        if output not in made:
            yield Finding("replay", str(output), f"{name} lists it, but its job does not write it")
    for output, path in made.items():
        if output not in folder.files:
            continue  # the check of outputs names it
        found = compare(folder.files[output], path)
        if found is not None:
            yield from _judged(folder, name, output, found)


def call(entry: Job, handler: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Run a handler silently."""
    import torch

    positional = [arguments[p.name] for p in entry.parameters if p.positional]
    threads = torch.get_num_threads()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            handler(*positional, **{k: v for k, v in arguments.items() if not entry.is_positional(k)})
    finally:
        torch.set_num_threads(threads)  # a training or an evaluation sets its own


# ------------------------------------------------------------------------------------------------------------- paths
def _named(folder: ResultsFolder, path: Path) -> str:
    name = folder.moved(Path(path).as_posix())
    if name is None:
        raise NotHere(str(path))
    return name


def _located(folder: ResultsFolder, entry: Job, handler: Callable[..., Any], key: str, value: Any) -> Any:
    """The file or folder under audit that stands for a path of the command."""
    if value is None or isinstance(value, list):
        return None if value is None else [_located(folder, entry, handler, key, item) for item in value]
    defaults = {**(handler.__kwdefaults__ or {})} | _defaults(handler)
    if isinstance(defaults.get(key), Path):
        return defaults[key]  # a file of the program, such as the paper's numbers: always the present one
    name = _named(folder, value)
    if name.strip("/") in ("", FIGURES):
        place = folder.figures if name else folder.results
        if place is None:
            raise NotHere(FIGURES)
        return place
    if name in folder.files:
        return folder.files[name]
    inside = (folder.results / name) if not name.startswith(f"{FIGURES}/") else None
    if inside is None or not inside.is_dir() or inside.is_symlink():
        raise NotHere(name)
    return inside


def _defaults(handler: Callable[..., Any]) -> dict[str, Any]:
    names = handler.__code__.co_varnames[: handler.__code__.co_argcount]
    values = handler.__defaults__ or ()
    return dict(zip(names[len(names) - len(values) :], values, strict=True))


# ----------------------------------------------------------------------------------------------------------- verdict
def _judged(folder: ResultsFolder, name: str, output: str, found: Difference) -> Iterator[Finding]:
    job = folder.manifests[name]["job"]
    what = f"made again by job {job} it is different: {found.what}"
    if same_machine(folder.manifests[name]) or found.size > LOSSES.get(job, NUMBERS):
        yield excused(folder, name, Finding("replay", output, what))
    else:
        yield Finding("replay", output, f"made on another machine; the largest difference is {found.size:.1g}", "note")


def excused(folder: ResultsFolder, name: str, finding: Finding) -> Finding:
    """A mismatch, unless other code or another environment explains it: then it was not checked."""
    manifest = folder.manifests[name]
    if changed := changed_modules(manifest):
        reason = f"made by other code ({', '.join(changed[:3])}{' …' * (len(changed) > 3)}), so not checked"
    elif not same_machine(manifest) and Path(finding.where).suffix in (".pdf", ".svg", ".png", ".html"):
        reason = "made in another environment, so not checked"
    else:
        return finding
    return Finding(finding.check, finding.where, f"{finding.what}; {reason}", "unseen")


def changed_modules(manifest: dict[str, Any]) -> list[str]:
    """Modules whose code has changed since a manifest was written, comments apart."""
    then = manifest.get("sources", {})
    now = module_hashes(f"lmu_scaling.{module}" for module in then)
    return sorted(module for module, meaning in then.items() if now.get(module) != meaning)


def same_machine(manifest: dict[str, Any]) -> bool:
    then, now = manifest.get("environment", {}), environment()
    return all(then.get(key) == now.get(key) for key in SAME_MACHINE)
