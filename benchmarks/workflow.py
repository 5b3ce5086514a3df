"""What Snakemake itself costs: dry runs, a run with nothing to do, overhead per job: `python -m benchmarks.workflow`.

Everything happens in a scratch directory. The smallest job of the workflow (`specify`, a spec written as JSON) stands
for the overhead; the smoke experiment, run once for real, for a run with nothing to do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import harness
from benchmarks.machine import how, options, settle
from benchmarks.store import Table, cell
from lmu_scaling.spec import Run

ROOT = harness.ROOT
CORES = 2
PRESETS = ROOT / "workflow" / "presets"


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


# Tables --------------------------------------------------------------------------------------------------------------


def start_table(args: argparse.Namespace, folder: Path) -> Table:
    """What passes before the first job, or instead of one."""
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
    return harness.table("Snakemake: before the first job", ["what", "time"], rows, [f"{how(args)}."], args.clock)


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def overhead_table(args: argparse.Namespace, folder: Path) -> Table:
    """Many tiny jobs: what is not their own time is Snakemake's."""
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
        ["jobs per second, all told", cell(jobs / wall, better="higher", unit=" /s")],
        ["a job's own time (Python, the verb, its manifest)", cell(own / jobs, better="lower", unit=" s")],
        ["Snakemake's part per job", cell(max(wall - idle - own / CORES, 0) / jobs, better="lower", unit=" s")],
        ["the same command again, nothing to do", cell(idle, better="lower", unit=" s")],
    ]
    notes = [f"{jobs} jobs `specify` on {CORES} cores, against the sum of their own times; seconds on the wall."]
    return harness.table("Snakemake: overhead per job", ["what", "result"], rows, notes, args.clock)


def main() -> None:
    args = settle(options(__doc__).parse_args(), rounds=3, quick_rounds=1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tables = [start_table(args, folder), overhead_table(args, folder)]
    left = (
        "short jobs pay mostly for the start of Python and its imports; grouping them would save seconds of a default "
        "run, at the price of coarser restarts."
    )
    harness.publish("workflow", tables, left, args.quick)


if __name__ == "__main__":
    main()
