# Reads and validates the configuration, and gives the other rule files the few names they share.

import shlex
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.io import apply_wildcards

from lmu_scaling import experiment
from lmu_scaling.planning.resources import JobResources, Partition
from lmu_scaling.config import read, validate
from lmu_scaling.corpus.filters import surveyed
from lmu_scaling.errors import UserError
from lmu_scaling.fingerprint import fingerprint
from lmu_scaling.jobs import command, find, own_python
from lmu_scaling.models import architecture
from lmu_scaling.analysis.claims import claim_modules
from lmu_scaling.healing import omitted
from lmu_scaling.paper.inputs import inputs_of
from lmu_scaling.paper.look import look_of
from lmu_scaling.runtime import canonical_json, sha256_bytes, sha256_file
from lmu_scaling.spec import NUMBER, TAIL

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
CELLS = {cell.name: cell for cell in experiment.cells(CONFIG)}
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
    run=rf"\w+-[A-Za-z0-9.]+-x{NUMBER}-{TAIL}",
    cell=rf"\w+-[A-Za-z0-9.]+-x{NUMBER}",
    part=r"\d{5}",
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


def catalog_entry(source):
    """Hash of one entry of the catalogue of sources, so that another entry or a comment reruns nothing."""
    try:
        entry = read(f"{CATALOG}/datasets.yaml").get(source)
    except UserError:
        return content(f"{CATALOG}/datasets.yaml")  # `fetch` says what is wrong with it
    return sha256_bytes(canonical_json(entry).encode())[:16]


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


def origin_of(wildcards):
    return experiment.origin(CONFIG, {**RUNS, **SWEEPS}[wildcards.run])


def tuning_of(wildcards):
    """The judged sweep behind a run."""
    cell = origin_of(wildcards).tuning
    return [] if cell is None else f"{RESULTS}/training/tuning/{cell.name}.json"


def earlier_results(wildcards):
    """Results of the sweep runs that decide where this one lies."""
    return [
        f"{RESULTS}/training/{run.name}/result.json"
        for run in origin_of(wildcards).earlier
    ]


def sweep_results(wildcards):
    runs = experiment.sweep(CONFIG, CELLS[wildcards.cell])
    return [f"{RESULTS}/training/{run.name}/result.json" for run in runs]


def search_step(axis):
    """Factor between neighbouring sweep runs, of a run's or a named cell; null where the axis is fixed."""

    def step(wildcards):
        name = getattr(wildcards, "cell", None)
        run = None if name else {**RUNS, **SWEEPS}[wildcards.run]
        cell = CELLS[name] if name else experiment.cell_of(CONFIG, run)
        steps = {} if cell is None else experiment.search_steps(CONFIG, cell)
        return canonical_json(steps.get(f"{axis}_step"))

    return step


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


# ---- everything that is kept


def wildcards_of(rule):
    """The values of a rule's wildcards in this experiment; none if it has jobs on request only."""
    every_run = [{"run": run} for run in [*RUNS, *SWEEPS]]
    parts = [{"part": f"{part:05d}"} for part in range(CONFIG.corpus.parts)]
    jobs = {
        "survey": parts if surveyed(CONFIG.corpus.filters) else [],
        "encode": parts,
        "shard": parts,
        "specify": every_run,
        "train": every_run,
        "tune": [{"cell": cell} for cell in CELLS],
        "evaluate": [{"run": run} for run in RUNS],
        "figure": [{"name": name} for name in CONFIG.paper.figures],
        "paper_table": [{"name": name} for name in CONFIG.paper.tables],
    }
    return jobs.get(rule, [{}])


def jobs_of(*rules, temporary=False):
    """Manifest and outputs of every job of these rules, with or without those that are deleted after use."""
    for each in rules:
        wanted = [f for f in each.output if temporary or not f.flags.get("temp")]
        for values in wildcards_of(each.name):
            manifest = apply_wildcards(str(each.output.manifest), values)
            yield manifest, [apply_wildcards(str(file), values) for file in wanted]


def kept_rules():
    """The rules whose outputs are kept: all but the audit, which looks at them, and the bundle, made on request."""
    made = [rule for rule in workflow.rules if getattr(rule.output, "manifest", None)]
    return [rule for rule in made if rule.name not in ("audit", "bundle")]


def lost():
    """Files that were made and are gone. `rule all` asks for them, since Snakemake by itself misses no file in between."""
    finished = Path(f"{RESULTS}/audit/audit.json").exists()
    # what a bundle leaves out is asked for by nobody until a job needs it
    known = omitted(f"{RESULTS}/bundle.json", RESULTS)
    for manifest, files in jobs_of(*kept_rules()):
        if finished or Path(manifest).exists():
            yield from (f for f in files if f not in known and not Path(f).exists())


def all_manifests():
    """The manifest of every job, so that the audit renews after each of them."""
    return [manifest for manifest, _ in jobs_of(*kept_rules())]
