"""The job `plan`: what an experiment will cost before it runs, and what is done already.

Training dominates, so each run is counted: FLOPs from Table 2's formulas; time from FLOPs, and on a GPU from bytes as
well, or, with `rehearse`, from the throughput of each model on this machine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmu_scaling import experiment
from lmu_scaling.config import load, validate
from lmu_scaling.corpus.filters import surveyed
from lmu_scaling.jobs import Output, job
from lmu_scaling.planning import cost_model
from lmu_scaling.planning.disk import disk_space, free_bytes, used_bytes
from lmu_scaling.planning.rendering import plan_markdown, plan_text
from lmu_scaling.runtime import atomic_write, write_json
from lmu_scaling.sections import Accelerator, Config
from lmu_scaling.spec import Run

# Seconds of one job on one core, measured on the smoke preset; jobs that read the corpus take longer (TEXT_PER_SECOND).
JOB_SECONDS = {
    "fetch": 2,
    "survey": 2,
    "encode": 2,
    "deduplicate": 3,
    "shard": 2,
    "index": 2,
    "specify": 0.5,
    "tune": 0.5,
    "table": 3,
    "per_token": 4,
    "fit": 6,
    "counts": 6,
    "largest": 10,
    "complexity": 60,
    "claims": 2,
    "figure": 4,
    "paper_table": 2,
    "report": 15,
    "effective_config": 0.5,
    "audit": 8,
}
LIGHT_JOB_MB = 2000


@dataclass(frozen=True)
class RuleCost:
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


@job
def plan(
    config: dict[str, Any] | None = None,
    configfile: list[Path] | None = None,
    results: Path = Path("results"),
    rehearse: bool = False,
    threads: int = 1,
    out_json: Output | None = None,
    out_md: Output | None = None,
) -> dict[str, Any]:
    """Estimate what an experiment will cost, and what is done already.

    Args:
        config: the configuration as JSON
        configfile: or configuration file and overlays; default: config.yaml
        results: folder results
        rehearse: measure two steps of every model here, instead of assuming a utilisation
        threads: CPU threads of the rehearsal
        out_json: plan.json
        out_md: plan.md
    """
    settings = validate(config) if config else load(*(configfile or [Path("config.yaml")]))
    speeds = {}
    if rehearse:
        from lmu_scaling.planning.rehearsal import measure_throughput

        speeds = measure_throughput(settings, threads)
    record = Planner(settings, Path(results), speeds).record()
    print(plan_text(record), flush=True)
    if out_md is not None:
        with atomic_write(out_md) as file:
            file.write(plan_markdown(record))
    if out_json is not None:
        write_json(out_json, record)
    return {"experiment": settings.experiment, "flops": record["flops"], "tokens": record["tokens"]}


class Planner:
    """Cost of one experiment. `speeds`: measured tokens per second of `<variant>-<size>`."""

    def __init__(self, config: Config, results: Path, speeds: dict[str, float] | None = None) -> None:
        self.config, self.results, self.speeds = config, results, speeds or {}
        self.folder = results / config.experiment
        self.runs, self.sweeps = experiment.runs(config), experiment.sweeps(config)
        all_runs = (*self.runs, *self.sweeps)
        self.costs = {run: cost_model.training_cost(experiment.spec_of(config, run)) for run in all_runs}
        self.corpus = cost_model.corpus_size(config, self.folder / "tokens/index.json")

    def record(self) -> dict[str, Any]:
        """The plan as JSON."""
        from lmu_scaling.planning.verdicts import possible_verdicts  # imports pandas, which no start needs

        rows = [*self.data_rows(), *self.training_rows(), self.evaluation_row(), *self.light_rows()]
        space = disk_space(self.config, self.corpus)
        return {
            "experiment": self.config.experiment,
            "rehearsed": bool(self.speeds),
            "tokens_per_second": self.speeds,
            "rows": [asdict(row) for row in rows],
            "tokens": sum(row.tokens for row in rows if row.stage == "training"),
            "flops": sum(row.flops for row in rows),
            "data": asdict(self.corpus),
            "verdicts": possible_verdicts(self.config, self.corpus.kept_tokens),
            "disk": {**asdict(space), "present": used_bytes(self.folder), "free": free_bytes(self.results)},
            "accelerators": [self.on_accelerator(device) for device in self.config.plan.accelerators],
            "total_seconds": sum(row.seconds for row in rows),
            "remaining_seconds": sum(row.seconds * (1 - row.done / row.jobs) for row in rows if row.jobs),
            "critical_path_seconds": self.critical_path_seconds(),
        }

    # ---------------------------------------------------------------------------------------------------------- rows
    def data_rows(self) -> list[RuleCost]:
        corpus, parts = self.corpus, self.config.corpus.parts
        outputs = {
            "fetch": ["corpus/source.json"],
            "survey": [f"tokens/parts/{part:05d}.survey.manifest.json" for part in range(parts)],
            "encode": [f"tokens/parts/{part:05d}.json" for part in range(parts)],
            "deduplicate": ["tokens/report.csv"],
            "shard": [f"tokens/{part:05d}.json" for part in range(parts)],
            "index": ["tokens/index.json"],
        }
        if not surveyed(self.config.corpus.filters):
            del outputs["survey"]
        tokens = {"encode": corpus.tokens, "shard": corpus.kept_tokens}
        memory = {"deduplicate": cost_model.deduplicate_mb(self.config, corpus)}
        rows = []
        for rule, files in outputs.items():
            stage = "corpus" if rule == "fetch" else "tokens"
            size = corpus.raw_bytes if rule == "fetch" else corpus.text_bytes
            total = len(files) * JOB_SECONDS[rule] + size / cost_model.TEXT_PER_SECOND[rule]
            row = (stage, rule, len(files), self.existing(files), tokens.get(rule, 0), 0.0, total, total / len(files))
            rows.append(RuleCost(*row, memory.get(rule, LIGHT_JOB_MB)))
        return rows

    def training_rows(self) -> list[RuleCost]:
        device = self.config.plan.accelerators[0]
        rows = []
        for rule, runs in (("train (sweep)", self.sweeps), ("train", self.runs)):
            if runs:
                costs, seconds = [self.costs[run] for run in runs], [self.training_seconds(run) for run in runs]
                memory = max(cost_model.training_resources(cost, device)["mem_mb"] for cost in costs)
                done = self.existing([f"training/{run.name}/result.json" for run in runs])
                totals = (sum(c.tokens for c in costs), sum(c.flops for c in costs), sum(seconds), max(seconds))
                rows.append(RuleCost("training", rule, len(runs), done, *totals, memory))
        return rows

    def evaluation_row(self) -> RuleCost:
        flops = [cost_model.evaluation_flops(self.config, self.corpus, run) for run in self.runs]
        seconds = list(self.evaluation_seconds(self.config.plan.accelerators[0]).values())
        done = self.existing([f"evaluation/{run.name}/summary.json" for run in self.runs])
        tokens = cost_model.evaluated_sequences(self.config, self.corpus) * self.config.models.context * len(flops)
        totals = (tokens, sum(flops), sum(seconds), max(seconds))
        return RuleCost("evaluation", "evaluate", len(flops), done, *totals, LIGHT_JOB_MB)

    def light_rows(self) -> list[RuleCost]:
        runs, cells = [*self.runs, *self.sweeps], experiment.cells(self.config)
        figures = (self.results.parent / "paper_figures").absolute()
        outputs = {
            ("training", "specify"): [f"training/{run.name}/spec.json" for run in runs],
            ("training", "tune"): [f"training/tuning/{cell.name}.json" for cell in cells],
            ("analysis", "table"): ["analysis/runs.csv"],
            ("analysis", "per_token"): ["analysis/per_token_fits.csv"],
            ("analysis", "fit"): ["analysis/fits.json"],
            ("analysis", "counts"): ["analysis/counts.csv"],
            ("analysis", "largest"): ["analysis/table2_largest.csv"],
            ("analysis", "complexity"): ["analysis/complexity.csv"],
            ("analysis", "claims"): ["analysis/claims.json"],
            ("paper", "figure"): [f"{figures}/{name}.pdf" for name in self.config.paper.figures],
            ("paper", "paper_table"): [f"{figures}/tables/{name}.csv" for name in self.config.paper.tables],
            ("paper", "report"): ["report.html"],
            ("planning", "effective_config"): ["config.json"],
            ("audit", "audit"): ["audit/audit.json"],
        }
        rows = []
        for (stage, rule), files in outputs.items():
            if files:
                times = (len(files) * JOB_SECONDS[rule], JOB_SECONDS[rule])
                rows.append(RuleCost(stage, rule, len(files), self.existing(files), 0, 0.0, *times, LIGHT_JOB_MB))
        return rows

    def existing(self, files: list[str]) -> int:
        return sum((self.folder / file).is_file() for file in files)

    # --------------------------------------------------------------------------------------------------------- times
    def training_seconds(self, run: Run) -> float:
        return self.costs[run].seconds(self.config.plan.accelerators[0], self.speeds.get(f"{run.variant}-{run.size}"))

    def evaluation_seconds(self, accelerator: Accelerator) -> dict[Run, float]:
        return {run: cost_model.evaluation_seconds(self.config, self.corpus, run, accelerator) for run in self.runs}

    def on_accelerator(self, accelerator: Accelerator) -> dict[str, Any]:
        """Device hours of training and evaluation on one accelerator, and their price."""
        training = {run: cost.seconds(accelerator) for run, cost in self.costs.items()}
        evaluation = self.evaluation_seconds(accelerator)
        left = sum(s for run, s in training.items() if not self.existing([f"training/{run.name}/result.json"]))
        left += sum(s for run, s in evaluation.items() if not self.existing([f"evaluation/{run.name}/summary.json"]))
        hours = (sum(training.values()) + sum(evaluation.values())) / 3600
        kind = accelerator.kind
        largest = max(self.costs.values(), key=lambda cost: cost.memory_bytes(kind, 1))
        return {
            "name": accelerator.name,
            "hours": hours,
            "remaining_hours": left / 3600,
            "longest_hours": max(training.values()) / 3600,
            "price": hours * accelerator.price_per_hour,
            "utilisation": accelerator.utilisation,
            "bandwidth_gbs": accelerator.bandwidth_gbs,
            "micro_batch": min(cost.micro_batch(accelerator) for cost in self.costs.values()),
            "memory_gb": largest.memory_bytes(kind, largest.batch) / 1e9,
        }

    def critical_path_seconds(self) -> float:
        """The longest chain of runs that wait for each other: training time with any number of devices."""
        ends: dict[experiment.Cell, float] = {}
        for cell in experiment.cells(self.config):  # a cell that lends its embedding scale comes first
            lender, times = experiment.scale_lender(self.config, cell), experiment.sweep(self.config, cell)
            chain = 1 + max(0, len(times) - len(experiment.grid(self.config, cell)))  # the grid runs at once
            ends[cell] = (ends[lender] if lender else 0.0) + chain * self.training_seconds(times[0])
        waits = {run: experiment.cell_of(self.config, run) for run in self.runs}
        return max(self.training_seconds(run) + (ends[cell] if cell else 0.0) for run, cell in waits.items())
