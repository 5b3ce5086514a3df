"""The verb `plan`: what an experiment will cost before anything runs, and what is done already.

Training dominates, so it is counted run by run: FLOPs from Table 2's formulas, hours from a stated utilisation or, with
`rehearse`, from two steps of each model on this machine.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmu_scaling import experiment
from lmu_scaling.audit import estimate
from lmu_scaling.audit.words import plan_markdown, plan_text, size
from lmu_scaling.config import CATALOG, load, validate
from lmu_scaling.counting import count
from lmu_scaling.errors import DiskFull
from lmu_scaling.runtime import atomic_write, read_json, write_json
from lmu_scaling.sections import Accelerator, Config
from lmu_scaling.spec import Run

# Seconds of one light job on one core, measured on the smoke preset; bytes of text per second of those that read it.
LIGHT = {
    "fetch": 2,
    "deduplicate": 3,
    "tokens_manifest": 2,
    "specify": 0.5,
    "tune": 0.5,
    "table": 3,
    "per_token": 4,
    "fit": 6,
    "counts": 6,
    "complexity": 30,
    "claims": 2,
    "figure": 4,
    "paper_table": 2,
    "report": 15,
    "effective_config": 0.5,
    "audit": 8,
}
TEXT_PER_SECOND = {"filter": 8e6, "deduplicate": 100e6, "tokenise": 400e6, "tokens_manifest": 800e6, "fetch": 20e6}
EVALUATE_SECONDS = 5.0


@dataclass(frozen=True)
class Row:
    """One rule: its jobs, and what they take on one device of the first accelerator (or one core)."""

    stage: str
    rule: str
    jobs: int
    done: int
    tokens: int
    flops: float
    seconds: float
    longest: float
    mem_mb: int


def plan(
    config: str | None = None,
    configfile: list[Path] | None = None,
    results: Path = Path("results"),
    rehearse: bool = False,
    threads: int = 1,
    out_json: Path | None = None,
    out_md: Path | None = None,
) -> dict[str, Any]:
    """Print the plan; `config` is JSON, else `configfile` names the configuration and its overlays."""
    settings = validate(json.loads(config)) if config else load(*(configfile or [Path("config.yaml")]))
    speeds = {}
    if rehearse:
        from lmu_scaling.audit.rehearse import throughput

        speeds = throughput(settings, threads)
    record = make(settings, Path(results), speeds)
    print(plan_text(record), flush=True)
    if out_md is not None:
        with atomic_write(out_md) as file:
            file.write(plan_markdown(record))
    if out_json is not None:
        write_json(out_json, record)
    return {"experiment": settings.experiment, "flops": record["flops"], "tokens": record["tokens"]}


def make(config: Config, results: Path, speeds: dict[str, float] | None = None) -> dict[str, Any]:
    """The plan as JSON. `speeds`: tokens per second of `<variant>-<size>`, measured here."""
    home, speeds = results / config.experiment, speeds or {}
    manifest = read_json(home / "tokens/manifest.json") if (home / "tokens/manifest.json").is_file() else None
    data = estimate.corpus(config, CATALOG / "datasets.yaml", manifest)
    rows = [*_data_rows(config, data, home), *_training_rows(config, home, speeds)]
    rows += [_evaluation_row(config, data, home), *_light_rows(config, home)]
    training = [row for row in rows if row.stage == "training"]
    space = estimate.disk(config, data)
    return {
        "experiment": config.experiment,
        "rehearsed": bool(speeds),
        "tokens_per_second": speeds,
        "rows": [asdict(row) for row in rows],
        "tokens": sum(row.tokens for row in training),
        "flops": sum(row.flops for row in rows),
        "data": asdict(data),
        "disk": {**asdict(space), "present": _present(home), "free": free_bytes(results)},
        "accelerators": [_on(config, data, home, accelerator) for accelerator in config.plan.accelerators],
        "total_seconds": sum(row.seconds for row in rows),
        "remaining_seconds": sum(row.seconds * (1 - row.done / row.jobs) for row in rows if row.jobs),
        "chain_seconds": _chain(config, speeds),
    }


# -------------------------------------------------------------------------------------------------------------- rows
def _data_rows(config: Config, data: estimate.Data, home: Path) -> list[Row]:
    text, parts = data.text_bytes, config.corpus.parts
    raw = data.raw_bytes / TEXT_PER_SECOND["fetch"]
    seconds = {
        "fetch": LIGHT["fetch"] + raw,
        "filter": parts * 2 + text / TEXT_PER_SECOND["filter"],
        "deduplicate": LIGHT["deduplicate"] + text / TEXT_PER_SECOND["deduplicate"],
        "tokenise": parts * 2 + text / TEXT_PER_SECOND["tokenise"],
        "tokens_manifest": LIGHT["tokens_manifest"] + text / TEXT_PER_SECOND["tokens_manifest"],
    }
    made = {
        "fetch": _exist(home, ["corpus/source.json"]),
        "filter": _exist(home, [f"corpus/parts/{part:05d}.json" for part in range(parts)]),
        "deduplicate": _exist(home, ["corpus/report.csv"]),
        "tokenise": _exist(home, [f"tokens/{part:05d}.json" for part in range(parts)]),
        "tokens_manifest": _exist(home, ["tokens/manifest.json"]),
    }
    stage = {"fetch": "corpus", "filter": "corpus", "deduplicate": "corpus"}
    rows = []
    for rule, total in seconds.items():
        jobs = parts if rule in ("filter", "tokenise") else 1
        tokens = data.tokens if rule == "filter" else data.kept_tokens if rule == "tokenise" else 0
        memory = estimate.deduplicate_mb(data) if rule == "deduplicate" else 2000
        row = Row(stage.get(rule, "tokens"), rule, jobs, made[rule], tokens, 0.0, total, total / jobs, memory)
        rows.append(row)
    return rows


def _training_rows(config: Config, home: Path, speeds: dict[str, float]) -> list[Row]:
    rows = []
    for rule, runs in (("train (sweep)", experiment.sweeps(config)), ("train", experiment.runs(config))):
        if not runs:
            continue
        costs = [estimate.training_cost(experiment.spec_of(config, run)) for run in runs]
        first = config.plan.accelerators[0]
        seconds = [c.seconds(first, speeds.get(f"{r.variant}-{r.size}")) for c, r in zip(costs, runs, strict=True)]
        memory = max(estimate.training_resources(experiment.spec_of(config, run), first)["mem_mb"] for run in runs)
        done = _exist(home, [f"training/{run.name}/result.json" for run in runs])
        totals = (sum(c.tokens for c in costs), sum(c.flops for c in costs), sum(seconds), max(seconds))
        rows.append(Row("training", rule, len(runs), done, *totals, memory))
    return rows


def _evaluation_row(config: Config, data: estimate.Data, home: Path) -> Row:
    runs, first = experiment.runs(config), config.plan.accelerators[0]
    flops = [_evaluation_flops(config, data, run) for run in runs]
    seconds = [EVALUATE_SECONDS + each / (first.tflops * 1e12 * first.utilisation) for each in flops]
    done = _exist(home, [f"evaluation/{run.name}/summary.json" for run in runs])
    tokens = len(runs) * estimate.evaluated_sequences(config, data) * config.models.context
    return Row("evaluation", "evaluate", len(runs), done, tokens, sum(flops), sum(seconds), max(seconds), 2000)


def _evaluation_flops(config: Config, data: estimate.Data, run: Run) -> float:
    counts = count(experiment.model_spec(config, run.variant, run.size))
    return float(estimate.evaluated_sequences(config, data) * config.models.context * counts.flops_with_head)


def _light_rows(config: Config, home: Path) -> list[Row]:
    runs = [*experiment.runs(config), *experiment.sweeps(config)]
    cells = {(run.variant, run.size) for run in runs} if experiment.sweeps(config) else set()
    figures, tables = config.paper.figures, config.paper.tables
    paper = home.parent.parent / "paper_figures"
    listed = [
        ("training", "specify", _exist(home, [f"training/{run.name}/spec.json" for run in runs]), len(runs)),
        ("training", "tune", _exist(home, [f"training/tuning/{v}-{s}.json" for v, s in cells]), len(cells)),
        ("analysis", "table", _exist(home, ["analysis/runs.csv"]), 1),
        ("analysis", "per_token", _exist(home, ["analysis/per_token_fits.csv"]), 1),
        ("analysis", "fit", _exist(home, ["analysis/fits.json"]), 1),
        ("analysis", "counts", _exist(home, ["analysis/counts.csv"]), 1),
        ("analysis", "complexity", _exist(home, ["analysis/complexity.csv"]), 1),
        ("analysis", "claims", _exist(home, ["analysis/claims.json"]), 1),
        ("paper", "figure", _exist(paper, [f"{name}.pdf" for name in figures]), len(figures)),
        ("paper", "paper_table", _exist(paper, [f"tables/{name}.csv" for name in tables]), len(tables)),
        ("paper", "report", _exist(home, ["report.html"]), 1),
        ("audit", "effective_config", _exist(home, ["config.json"]), 1),
        ("audit", "audit", _exist(home, ["audit/audit.json"]), 1),
    ]
    return [
        Row(stage, rule, jobs, done, 0, 0.0, jobs * LIGHT[rule], LIGHT[rule], 2000)
        for stage, rule, done, jobs in listed
        if jobs
    ]


def _exist(folder: Path, names: list[str]) -> int:
    return sum((folder / name).is_file() for name in names)


# ------------------------------------------------------------------------------------------------------ accelerators
def _on(config: Config, data: estimate.Data, home: Path, accelerator: Accelerator) -> dict[str, Any]:
    """Device hours of training and evaluation on one accelerator, and what they cost."""
    runs = [*experiment.runs(config), *experiment.sweeps(config)]
    costs = {run: estimate.training_cost(experiment.spec_of(config, run)) for run in runs}
    seconds = {run: cost.seconds(accelerator) for run, cost in costs.items()}
    rate = accelerator.tflops * 1e12 * accelerator.utilisation
    evaluations = {r: EVALUATE_SECONDS + _evaluation_flops(config, data, r) / rate for r in experiment.runs(config)}
    left = sum(s for run, s in seconds.items() if not (home / f"training/{run.name}/result.json").is_file())
    left += sum(s for run, s in evaluations.items() if not (home / f"evaluation/{run.name}/summary.json").is_file())
    hours = (sum(seconds.values()) + sum(evaluations.values())) / 3600
    largest = max(costs.values(), key=lambda cost: cost.memory_bytes(1))
    return {
        "name": accelerator.name,
        "hours": hours,
        "remaining_hours": left / 3600,
        "longest_hours": max(seconds.values()) / 3600,
        "price": hours * accelerator.price_per_hour,
        "utilisation": accelerator.utilisation,
        "micro_batch": min(cost.micro_batch(0.9 * accelerator.memory_gb * 1e9) for cost in costs.values()),
        "memory_gb": largest.memory_bytes(largest.batch) / 1e9,
    }


def _chain(config: Config, speeds: dict[str, float]) -> float:
    """The longest chain of training jobs: with devices without end, nothing is faster."""
    first = config.plan.accelerators[0]

    def seconds(run: Run) -> float:
        cost = estimate.training_cost(experiment.spec_of(config, run))
        return cost.seconds(first, speeds.get(f"{run.variant}-{run.size}"))

    longest = 0.0
    for run in experiment.runs(config):
        sweep = max((seconds(s) for s in experiment.sweep(config, run.variant, run.size)), default=0.0)
        longest = max(longest, sweep + seconds(run))
    return longest


# -------------------------------------------------------------------------------------------------------------- disk
def free_bytes(folder: Path) -> int:
    """Free space where `folder` is, or would be."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _present(home: Path) -> int:
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file()) if home.is_dir() else 0


def refuse_small_disk(config: Config, results: Path = Path("results"), downloads: Path = Path("data")) -> None:
    """Raise DiskFull before anything starts, instead of after a day of downloading."""
    home = results / config.experiment
    manifest = home / "tokens/manifest.json"
    data = estimate.corpus(config, CATALOG / "datasets.yaml", read_json(manifest) if manifest.is_file() else None)
    space = estimate.disk(config, data)
    if data.known:  # the corpus has been dealt with: raw text and parts are no longer needed
        space = estimate.Disk(0, space.kept, space.kept)
    have = sum(path.stat().st_size for path in downloads.rglob("*") if path.is_file()) if downloads.is_dir() else 0
    needs = [(results, max(0, space.peak - _present(home))), (downloads, max(0, space.download - have))]
    same = _device(results) == _device(downloads)
    checks = [(results, sum(need for _, need in needs))] if same else needs
    for folder, need in checks:
        if need > free_bytes(folder):
            raise DiskFull(
                f"this experiment needs about {size(need)} more, and {size(free_bytes(folder))} are free",
                str(folder),
                "free some space, link the folder to a larger disk, or choose a smaller preset (see `snakemake plan`)",
            )


def _device(folder: Path) -> int:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder.stat().st_dev


def wall_seconds(record: dict[str, Any], devices: int) -> float:
    """At best: as many devices as that, kept busy."""
    return max(record["chain_seconds"], math.fsum(row["seconds"] for row in record["rows"]) / devices)
