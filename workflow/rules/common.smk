# Reads and validates the configuration, and gives the other rule files the few names they share.

import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, workflow.basedir)

from lmu_scaling import experiment
from lmu_scaling.planning.resources import JobResources, Partition
from lmu_scaling.config import read, validate
from lmu_scaling.errors import UserError
from lmu_scaling.fingerprint import fingerprint
from lmu_scaling.jobs import command, find, own_python
from lmu_scaling.models import architecture
from lmu_scaling.analysis.claims import claim_modules
from lmu_scaling.paper.inputs import inputs_of
from lmu_scaling.runtime import canonical_json, sha256_bytes, sha256_file
from lmu_scaling.spec import NUMBER

try:
    # Snakemake has read these files, but of two equal keys it takes the last without a word.
    for path in workflow.configfiles:
        read(path)
    CONFIG = validate(config, " + ".join(map(str, workflow.configfiles)))
except UserError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{CONFIG.experiment}"
RUNS = {run.name: run for run in experiment.runs(CONFIG)}
SWEEPS = {run.name: run for run in experiment.sweeps(CONFIG)}
JOB_RESOURCES = JobResources(CONFIG, lambda: partitions())
CATALOG = f"{workflow.basedir}/lmu_scaling/catalog"
ENVS = f"{workflow.basedir}/envs"

# `python -m lmu_scaling` must be found from any working directory, and conda jobs start without PYTHONPATH.
# `python` is the interpreter that runs Snakemake, whatever PATH says, unless conda or a container provides one.
provided = (
    workflow.deployment_settings and workflow.deployment_settings.deployment_method
)
shell.prefix(
    "set -euo pipefail; "
    + ("" if provided else own_python(sys.executable))
    + f"export PYTHONPATH={shlex.quote(workflow.basedir)}; "
)


# Seconds long, or in need of the network: they stay on the machine where Snakemake runs, even if that is a login node.
localrules:
    all,
    fetch,
    specify,
    tune,
    claims,
    figure,
    paper_table,
    effective_config,
    plan,


wildcard_constraints:
    run=rf"\w+-[A-Za-z0-9.]+-x{NUMBER}-(s\d+|lr{NUMBER})",
    part=r"\d{5}",
    variant=r"\w+",
    size=r"[A-Za-z0-9.]+",
    name=r"\w+",


def code(job, *modules):
    """Fingerprint of the code behind a job: an edit that can change its result reruns its rule, a comment does not."""
    return fingerprint(find(job).module, *modules)


def model_code(job, run):
    """The same with the variant of one run and its layers: editing a layer retrains the variants that use it only."""
    return code(job, *architecture({**RUNS, **SWEEPS}[run].variant).modules)


def content(path):
    """Hash of a file's content: with ancient() on the input, an edit reruns and a fresh clone's mtime does not."""
    return sha256_file(path)[:16]


def own_files(path):
    """Fingerprint of the user's own text, so that an edited file is read anew. What is wrong with it, `fetch` says."""
    if path is None:
        return ""
    from lmu_scaling.corpus.sources import local_files

    try:
        found = [(str(file), file.stat()) for file in local_files(Path(path))]
    except (UserError, OSError):
        return ""
    facts = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in found]
    return sha256_bytes(canonical_json(facts).encode())[:16]


def narrow(section, *keys):
    """The part of a configuration section that a rule depends on, as JSON for its command line."""
    return as_json(section.model_dump(include=set(keys) if keys else None))


def as_json(value):
    """JSON for `params`, as a function: in a plain string Snakemake takes {braces} for wildcards."""
    text = canonical_json(value)
    return lambda wildcards: text


def partitions():
    """The partitions in the SLURM profile; none elsewhere. Snakemake knows its executor only after this file is read."""
    path = getattr(workflow.executor_settings, "partition_config", None)
    if path is None:
        return []
    from snakemake_executor_plugin_slurm.partitions import read_partition_file

    limits = [partition.limits for partition in read_partition_file(path)]
    return [Partition(limit.max_runtime, limit.max_gpu) for limit in limits]


# ---- inputs of rules, by stage


def spec_of(run):
    return experiment.spec_of(CONFIG, {**RUNS, **SWEEPS}[run])


def sweep_results(wildcards):
    runs = experiment.sweep(CONFIG, wildcards.variant, wildcards.size)
    return [f"{RESULTS}/training/{run.name}/result.json" for run in runs]


def tuning_of(wildcards):
    """The judged sweep behind a run; sweep runs and recipe `paper` have none."""
    run = RUNS.get(wildcards.run)
    if run is None or CONFIG.training.recipe == "paper":
        return []
    return f"{RESULTS}/training/tuning/{run.variant}-{run.size}.json"


def evaluated(*names):
    """These files of every run."""
    return [f"{RESULTS}/{name.format(run=run)}" for run in RUNS for name in names]


def models():
    """The distinct models of the experiment by `<variant>-<size>`."""
    cells = dict.fromkeys((run.variant, run.size) for run in RUNS.values())
    specs = {f"{v}-{s}": experiment.model_spec(CONFIG, v, s).asdict() for v, s in cells}
    return as_json(specs)


def shown(kind):
    """The tables a figure or table draws, as its module names them."""
    return lambda wildcards: [
        f"{RESULTS}/{path}" for path in inputs_of(kind, wildcards.name)
    ]


def products():
    """All that `rule all` makes, and the manifest of every job behind it, so that the audit renews after each of them."""
    drawn = [
        *(f"paper_figures/{name}.manifest.json" for name in CONFIG.paper.figures),
        *(f"paper_figures/tables/{name}.manifest.json" for name in CONFIG.paper.tables),
    ]
    runs = expand(
        f"{RESULTS}/training/{{run}}/{{name}}.manifest.json",
        run=[*RUNS, *SWEEPS],
        name=["spec", "train"],
    )
    evaluations = expand(
        f"{RESULTS}/evaluation/{{run}}/evaluate.manifest.json", run=RUNS
    )
    analyses = ("runs", "per_token", "fits", "counts", "complexity", "claims")
    return [
        *FIGURES,
        *TABLES,
        *drawn,
        *runs,
        *evaluations,
        *(f"{RESULTS}/analysis/{name}.manifest.json" for name in analyses),
        f"{RESULTS}/report.manifest.json",
        f"{RESULTS}/config.manifest.json",
    ]
