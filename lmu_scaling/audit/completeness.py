"""What a finished experiment has and this folder does not: an audit of a part says so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from lmu_scaling import experiment
from lmu_scaling.audit.replay import NO_RESULT, ON_TRUST, chosen, trained
from lmu_scaling.audit.results_folder import FIGURES, Finding, ResultsFolder
from lmu_scaling.config import validate
from lmu_scaling.corpus.filters import surveyed
from lmu_scaling.errors import UserError
from lmu_scaling.manifests import SUFFIX
from lmu_scaling.paths import REPOSITORY

IN_RULE = re.compile(r"\bcommand\(\s*\"([\w-]+)\"")


def expected_jobs() -> set[str]:
    """The jobs of the workflow's rules."""
    texts = [path.read_text("utf-8") for path in sorted((REPOSITORY / "workflow" / "rules").glob("*.smk"))]
    return set(IN_RULE.findall("\n".join(texts))) - set(NO_RESULT)


def complete(folder: ResultsFolder) -> Iterator[Finding]:
    """Every job of the workflow, every evaluation, figure and table of the configuration is here."""
    if not folder.config:
        yield Finding("complete", "config.json", "missing: what else is missing cannot be told", "unseen")
        return
    try:
        config = validate(folder.config, "config.json")
    except UserError:
        return  # the check of runs says so
    found = {manifest.get("job") for manifest in folder.manifests.values()}
    optional = set() if experiment.cells(config) else {"tune"}
    optional |= set() if surveyed(config.corpus.filters) else {"survey"}
    for job in sorted(expected_jobs() - found - optional):
        yield Finding("complete", job, "this job has left no manifest: its results were not checked", "unseen")
    wanted = [f"evaluation/{run.name}/evaluate{SUFFIX}" for run in experiment.runs(config)]
    wanted += [f"{FIGURES}/{name}{SUFFIX}" for name in config.paper.figures]
    wanted += [f"{FIGURES}/tables/{name}{SUFFIX}" for name in config.paper.tables]
    for name in wanted:
        if name not in folder.manifests:
            yield Finding("complete", name.removesuffix(SUFFIX), "not here: not checked", "unseen")
    for name in sorted(folder.left_out):
        if name.endswith((".bin", ".safetensors")):
            yield Finding("complete", name, "left out of the bundle: not checked", "unseen")


def trusted(folder: ResultsFolder, retrained: list[str], retokenized: bool = False, full: bool = False) -> list[str]:
    """What this audit has not made again, in words."""
    found = {manifest.get("job") for manifest in folder.manifests.values()}
    words = {
        "fetch": "the corpus is the one that was downloaded or given, and tokens were made from it; see `--retokenize`",
        "train": "weights were trained as their spec says; train a run again with `--retrain RUN`",
        "complexity": "the measured times and memory behind Table 1",
    }
    if retokenized:
        del words["fetch"]
    listed = [text for job, text in words.items() if job in found and job in ON_TRUST]
    left = set(chosen(folder, True, ())) - set(chosen(folder, full, ()))
    jobs = Counter(str(folder.manifests[name]["job"]) for name in left)
    if jobs:
        named = ", ".join(f"{job} ({count})" if count > 1 else job for job, count in sorted(jobs.items()))
        listed.insert(0, f"compared by checksum only, see `--full`: the outputs of {named}")
    again = sorted(trained(folder) & set(retrained))
    return listed + [f"(trained again: {', '.join(again)})"] * bool(again)
