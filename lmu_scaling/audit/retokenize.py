"""Corpus and tokens made again: the data stages run once more from the source, and their files are compared.

These jobs hand each other temporary files, so they are repeated together, in a scratch folder with the same layout.
The source is what `fetch` finds for the configuration: an installed package, files of yours, or a download.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmu_scaling import cli
from lmu_scaling.audit import replay
from lmu_scaling.audit.comparison import compare
from lmu_scaling.audit.results_folder import Finding, ResultsFolder
from lmu_scaling.audit.settings import disagreements
from lmu_scaling.errors import UserError
from lmu_scaling.jobs import jobs
from lmu_scaling.paths import DATASETS
from lmu_scaling.runtime import read_json

JOBS = ("fetch", "survey", "encode", "deduplicate", "shard", "index")  # in order of execution
SOURCE = "corpus/source.json"
DOWNLOADS = Path("data")  # as in workflow/rules/corpus.smk


def retokenized(folder: ResultsFolder) -> Iterator[Finding]:
    """Run the data stages again and compare what they keep."""
    present = {manifest.get("job") for manifest in folder.manifests.values()}
    if missing := [job for job in JOBS if job not in present and job != "survey"]:
        yield Finding("retokenize", "tokens", f"not made again: no manifest of {', '.join(missing)}", "unseen")
        return
    with tempfile.TemporaryDirectory() as scratch:
        for name in _in_order(folder):
            job = folder.manifests[name]["job"]
            try:
                yield from _run(folder, name, Path(scratch))
            except (UserError, Exception, SystemExit) as error:  # a forged file can make a job raise anything
                reason = error.what if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                level = "unseen" if job == "fetch" else "mismatch"
                what = "the source cannot be read" if job == "fetch" else "its job does not run on what was made again"
                yield replay.excused(folder, name, Finding("retokenize", name, f"{what}: {reason}", level))
                return
        yield from _compared(folder, Path(scratch))


def _in_order(folder: ResultsFolder) -> list[str]:
    found = [name for name, manifest in folder.manifests.items() if manifest.get("job") in JOBS]
    return sorted(found, key=lambda name: (JOBS.index(folder.manifests[name]["job"]), name))


def _run(folder: ResultsFolder, name: str, scratch: Path) -> Iterator[Finding]:
    """One job, with every path of the results replaced by one in the scratch folder."""
    manifest = folder.manifests[name]
    entry = jobs()[manifest["job"]]
    handler = entry.load()
    arguments, hints = cli.arguments_of(entry, handler, manifest["command"][3:])
    for key, value in arguments.items():
        if cli.role(hints[key]) and value not in (None, DATASETS, DOWNLOADS):
            arguments[key] = moved(folder, value, scratch)
    yield from disagreements(folder, name, entry, arguments, hints, [])
    replay.call(entry, handler, arguments)


def moved(folder: ResultsFolder, value: Any, scratch: Path) -> Any:
    """Where the scratch folder has a file of the results; a manifest may claim any path, and gets no other."""
    if isinstance(value, list):
        return [moved(folder, item, scratch) for item in value]
    name = folder.moved(Path(value).as_posix())
    path = scratch.resolve() / (name or "")
    if name is None or not path.resolve().is_relative_to(scratch.resolve()):
        raise replay.NotHere(str(value))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _compared(folder: ResultsFolder, scratch: Path) -> Iterator[Finding]:
    makers = {
        listed: name
        for name in _in_order(folder)
        for entries in folder.manifests[name]["outputs"].values()
        for entry in entries
        if (listed := folder.name_of(entry, name)) is not None
    }
    for output, name in sorted(makers.items()):
        if output not in folder.files:
            continue  # temporary, left out of a bundle, or named by the check of outputs
        made = scratch / output
        if not made.is_file():
            yield Finding("retokenize", output, f"{name} lists it, but its job does not write it")
        elif output == SOURCE:
            if _without_paths(folder.json(output)) != _without_paths(read_json(made)):
                what = "the source described here is not the one found on this machine"
                yield replay.excused(folder, name, Finding("retokenize", output, what))
        elif (found := compare(folder.files[output], made)) is not None:
            what = f"made again from the source it is different: {found.what}"
            yield replay.excused(folder, name, Finding("retokenize", output, what))


def _without_paths(value: Any) -> Any:
    """The description of a source without where it lies, which differs between machines."""
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items() if key != "path"}
    return [_without_paths(item) for item in value] if isinstance(value, list) else value
