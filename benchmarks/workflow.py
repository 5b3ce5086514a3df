"""What Snakemake costs, and where the time of a finished run went.

    python -m benchmarks.workflow                         # the newest finished run in results/
    python -m benchmarks.workflow --results results/sotu

Snakemake's own cost is measured in a scratch directory: the smallest job (`specify`, which writes a spec as JSON) for
the overhead per job; the smoke experiment, run once, for a run with nothing to do. Times of a finished run come from
the files that Snakemake wrote beside its results, one benchmarks/<rule>/<job>.tsv per job.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import harness
from benchmarks.harness import ROOT, conditions
from benchmarks.store import Cell, Table, cell
from lmu_scaling.runtime import duration
from lmu_scaling.spec import Run

CORES = 2
PRESETS = ROOT / "workflow" / "presets"
RULES = ROOT / "workflow" / "rules"
LAST = Path("audit/audit.json")  # the last file of a run
IMPORTS = {
    "start of Python": "pass",
    "import torch": "import torch",
    "imports of `train`": "import lmu_scaling.training.train",
    "imports of `evaluate`": "import lmu_scaling.evaluation.evaluate",
}
COLUMNS = ["jobs", "time", "share", "longest job", "CPU time", "peak memory"]


# Snakemake -----------------------------------------------------------------------------------------------------------


def snakemake(directory: Path, config: Path, *arguments: str, clock: str = "wall") -> float:
    """Run the workflow in `directory`; returns seconds, of all its processes if `clock` is "cpu"."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(directory)]
    command += ["--workflow-profile", str(ROOT / "profiles" / "default"), "--configfile", str(config)]
    command += ["--cores", str(CORES), "--quiet", "all", *arguments]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    passed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stdout[-3000:])
    return passed if clock == "wall" else after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def many_runs(folder: Path, runs: int) -> Path:
    """A configuration with that many runs: one variant, one size, many seeds."""
    path = folder / f"runs-{runs}.json"
    training = {"recipe": "paper", "seeds": list(range(1, runs + 1)), "budgets": []}
    sizes = [{"name": "6k", "d": 16}]
    config = {"experiment": f"runs{runs}", "models": {"variants": ["transformer"], "sizes": sizes}}
    path.write_text(json.dumps(config | {"training": training}))
    return path


def dry_runs(folder: Path, numbers: tuple[int, ...], args: argparse.Namespace) -> dict[int, harness.Timing]:
    """Seconds of a dry run of experiments with more and more runs."""
    works = {
        str(runs): lambda runs=runs: snakemake(folder, many_runs(folder, runs), "-n", clock=args.clock)
        for runs in numbers
    }
    found = harness.interleaved(works, rounds=min(args.rounds, 3), warm=0)
    return {int(name): timing for name, timing in found.items()}


def start_table(args: argparse.Namespace, folder: Path) -> Table:
    """Time before the first job, or when there is nothing to do."""
    works: dict[str, Any] = {
        "python -c pass": lambda: _seconds([sys.executable, "-c", "pass"]),
        "import of the workflow's package (`python -m lmu_scaling --help`)": lambda: _seconds(
            [sys.executable, "-m", "lmu_scaling", "--help"]
        ),
        "dry run of the paper preset": lambda: snakemake(folder, PRESETS / "paper.yaml", "-n", clock=args.clock),
    }
    if not args.quick:
        finished = folder / "smoke"
        finished.mkdir()
        snakemake(finished, PRESETS / "smoke.yaml")
        works["nothing to do: smoke experiment, finished"] = lambda: snakemake(
            finished, PRESETS / "smoke.yaml", clock=args.clock
        )
    timings = harness.interleaved(works, rounds=min(args.rounds, 5), warm=0 if args.quick else 1)
    rows = [[name, harness.seconds(timing)] for name, timing in timings.items()]
    return harness.table(
        "Snakemake: before the first job", ["what", "time"], rows, [f"{conditions(args)}."], args.clock
    )


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def overhead_table(args: argparse.Namespace, folder: Path) -> Table:
    """Many small jobs: time that is not their own is Snakemake's."""
    jobs = 20 if args.quick else 200
    config = many_runs(folder, jobs)
    results = f"results/runs{jobs}"
    targets = [
        f"{results}/training/{Run('transformer', '6k', 1.0, seed).name}/spec.json" for seed in range(1, jobs + 1)
    ]
    wall = snakemake(folder, config, "--", *targets)
    own = sum(pd.read_csv(path, sep="\t")["s"].iloc[0] for path in (folder / results / "benchmarks").rglob("*.tsv"))
    idle = snakemake(folder, config, "--", *targets)
    rows = [
        ["jobs per second, overall", cell(jobs / wall, better="higher", unit=" /s")],
        ["a job's own time (Python, its handler, its manifest)", cell(own / jobs, better="lower", unit=" s")],
        ["Snakemake's part per job", cell(max(wall - idle - own / CORES, 0) / jobs, better="lower", unit=" s")],
        ["the same command again, nothing to do", cell(idle, better="lower", unit=" s")],
    ]
    notes = [f"{jobs} jobs `specify` on {CORES} cores, against the sum of their own times; wall seconds."]
    return harness.table("Snakemake: overhead per job", ["what", "result"], rows, notes, args.clock)


# A finished run ------------------------------------------------------------------------------------------------------


def stage_of_rule() -> dict[str, str]:
    """The stage of each rule is the name of its file."""
    return {
        name: path.stem
        for path in sorted(RULES.glob("*.smk"))
        for name in re.findall(
            r"^(?:use rule \w+ as |(?:rule|checkpoint) )(\w+)", path.read_text("utf-8"), re.MULTILINE
        )
    }


def jobs(results: Path) -> pd.DataFrame:
    """One row per job: rule, stage, seconds, CPU seconds, peak memory [MB], and when it ended."""
    folder, stage, rows = results / "benchmarks", stage_of_rule(), []
    for path in sorted(folder.rglob("*.tsv")):
        facts = pd.read_csv(path, sep="\t", na_values="-").iloc[-1]
        rule = path.relative_to(folder).parts[0].removesuffix(".tsv")
        row = {"rule": rule, "stage": stage.get(rule, "other"), "seconds": facts["s"], "end": path.stat().st_mtime}
        rows.append(row | {"cpu": facts.get("cpu_time", float("nan")), "rss": facts.get("max_rss", float("nan"))})
    return pd.DataFrame(rows)


def by(key: str, found: pd.DataFrame) -> list[list[Any]]:
    """Cost of each stage or rule, largest first."""
    total = found["seconds"].sum()
    rows = []
    for name, group in sorted(found.groupby(key), key=lambda pair: -pair[1]["seconds"].sum()):
        seconds = group["seconds"].sum()
        rows.append(
            [
                name,
                len(group),
                cell(seconds, better="lower", unit=" s"),
                cell(seconds / total, unit="%"),
                cell(group["seconds"].max(), better="lower", unit=" s"),
                None if group["cpu"].isna().all() else cell(group["cpu"].sum(), better="lower", unit=" s"),
                None if group["rss"].isna().all() else cell(group["rss"].max(), better="lower", unit=" MB"),
            ]
        )
    return rows


def run_tables(results: Path, args: argparse.Namespace) -> list[Table]:
    if not (results / LAST).is_file():
        note = (
            f"There is no finished run of experiment {results.name}: `make run`, then `python -m benchmarks.workflow`."
        )
        return [harness.table("`make run` by stage", ["stage"], [], [note], args.clock)]
    found = jobs(results)
    wall = found["end"].max() - (found["end"] - found["seconds"]).min()
    notes = [
        f"Experiment {results.name}: {len(found)} jobs in {duration(wall)}, {found['seconds'].sum() / wall:.2f} at a "
        "time on average. Time: the sum over jobs. Of a run that was resumed or repeated, only the last jobs count."
    ]
    return [
        harness.table("`make run` by stage", ["stage", *COLUMNS], by("stage", found), notes, args.clock),
        harness.table("`make run` by rule", ["rule", *COLUMNS], by("rule", found)[:12], [], args.clock),
        jobs_table(results, found, args),
    ]


def newest(root: Path) -> Path:
    """The experiment that finished last, or the default one."""
    done = list(root.glob(f"*/{LAST}"))
    return max(done, key=lambda path: path.stat().st_mtime).parents[1] if done else root / "sotu"


def jobs_table(results: Path, found: pd.DataFrame, args: argparse.Namespace) -> Table:
    """What a job of the two costliest rules spends its time on."""
    works = {name: lambda code=code: _seconds([sys.executable, "-c", code]) for name, code in IMPORTS.items()}
    took = harness.interleaved(works, rounds=args.rounds)
    own = [json.loads(path.read_text())["machine"]["seconds"] for path in results.glob("training/*/result.json")]
    train, evaluate = (found[found["rule"] == rule]["seconds"].mean() for rule in ("train", "evaluate"))
    steps = sum(own) / (found["rule"] == "train").sum()
    imports = took["imports of `evaluate`"].median
    rows: list[list[Any]] = [
        ["train", "steps and validations", *_part(steps, train)],
        ["train", "before and after them", *_part(train - steps, train)],
        *(["train", f"… of which: {name}", harness.seconds(took[name]), None] for name in list(IMPORTS)[:3]),
        ["evaluate", "imports", *_part(imports, evaluate)],
        ["evaluate", "two splits: forward passes, sums, files", *_part(evaluate - imports, evaluate)],
    ]
    note = (
        "Means over the jobs of the finished run, in which two jobs share the machine. The imports were timed alone, "
        "with files in the page cache, and each contains the ones above it."
    )
    title, columns = "What a job's time goes to", ["rule", "what", "time per job", "share"]
    return harness.table(title, columns, rows, [note], args.clock)


def _part(part: float, whole: float) -> list[Cell]:
    return [cell(part, better="lower", unit=" s"), cell(part / whole, unit="%")]


def measure(args: argparse.Namespace) -> harness.Section:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        snakemake_tables = [start_table(args, folder), overhead_table(args, folder)]
    finished = run_tables(args.results or newest(ROOT / "results"), args)
    return [*snakemake_tables, *finished], remaining(finished)


def remaining(finished: list[Table]) -> str:
    """The largest costs, and why they are as they are; docs/log.md has what did not help."""
    short = (
        "Short jobs pay mostly for the start of Python and its imports; grouping them would save seconds of a default "
        "run, at the price of coarser restarts."
    )
    if len(finished) < 2:
        return f"unknown until there is a finished run. {short}"
    rows = finished[1]["rows"]
    top = [f"{row[0]} ({row[3]['value']:.0%})" for row in rows[:3]]
    rest = 1 - sum(row[3]["value"] for row in rows[:3])
    return (
        f"the three largest costs are {', '.join(top)}; all other rules together take {rest:.0%}. What surrounds the "
        "steps of a training job is mostly the start of Python and torch, which only processes kept alive between jobs "
        "would save. The LMU, the loss, attention and the LSTM are compiled kernels of ours. "
        "An evaluation uses the same kernels. `complexity` measures long sequences in fresh processes on purpose. "
        f"{short}"
    )


if __name__ == "__main__":
    harness.run_section("workflow", measure, __doc__, rounds=3, quick=1)
