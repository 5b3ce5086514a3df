"""Where the time of a finished run went, by stage and rule: `python -m benchmarks.whole --results results/sotu`.

Reads what Snakemake wrote beside the results, one benchmarks/<rule>/<job>.tsv per job; the largest costs are profiled
(costs.py).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import costs, harness
from benchmarks.machine import options, settle
from benchmarks.store import Table, cell
from lmu_scaling.runtime import duration

LAST = Path("audit/audit.json")  # what a run makes at its end
RULES = harness.ROOT / "workflow" / "rules"
# What the profile in the tables shows, and what was done about it; docs/log.md has what did not help.
PROFILED = (
    "Of a training job, what surrounds the steps is mostly the start of Python and torch, which only processes kept "
    "alive between jobs would save. Of its steps, the LMU and the loss are compiled kernels of ours, attention and the "
    "LSTM are torch's own. An evaluation computes by the same kernels. `complexity` measures long sequences in fresh "
    "processes, which is its purpose."
)


def stages() -> dict[str, str]:
    """The stage of each rule: the file that it is written in."""
    return {
        name: path.stem
        for path in sorted(RULES.glob("*.smk"))
        for name in re.findall(
            r"^(?:use rule \w+ as |(?:rule|checkpoint) )(\w+)", path.read_text("utf-8"), re.MULTILINE
        )
    }


def jobs(results: Path) -> pd.DataFrame:
    """One row per job: rule, stage, seconds, processor seconds, peak memory [MB], and when it ended."""
    folder, stage_of, rows = results / "benchmarks", stages(), []
    for path in sorted(folder.rglob("*.tsv")):
        facts = pd.read_csv(path, sep="\t", na_values="-").iloc[-1]
        rule = path.relative_to(folder).parts[0].removesuffix(".tsv")
        row = {"rule": rule, "stage": stage_of.get(rule, "other"), "seconds": facts["s"], "end": path.stat().st_mtime}
        rows.append(row | {"cpu": facts.get("cpu_time", float("nan")), "rss": facts.get("max_rss", float("nan"))})
    return pd.DataFrame(rows)


def by(key: str, found: pd.DataFrame) -> list[list[Any]]:
    """What each stage or rule took, the costliest first."""
    total = found["seconds"].sum()
    rows = []
    for name, group in sorted(found.groupby(key), key=lambda pair: -pair[1]["seconds"].sum()):
        seconds = group["seconds"].sum()
        rows.append(
            [
                name,
                len(group),
                cell(seconds, better="lower", unit=" s"),
                cell(seconds / total, better="–", unit="%"),
                cell(group["seconds"].max(), better="lower", unit=" s"),
                None if group["cpu"].isna().all() else cell(group["cpu"].sum(), better="lower", unit=" s"),
                None if group["rss"].isna().all() else cell(group["rss"].max(), better="lower", unit=" MB"),
            ]
        )
    return rows


def tables(results: Path, args: argparse.Namespace) -> list[Table]:
    if not (results / LAST).is_file():
        where = results.name or "results"
        note = f"There is no finished run of experiment {where}: `make run`, then `python -m benchmarks.whole`."
        return [harness.table("`make run` by stage", ["stage"], [], [note], args.clock)]
    found = jobs(results)
    wall = found["end"].max() - (found["end"] - found["seconds"]).min()
    busy = found["seconds"].sum() / wall
    notes = [
        f"Experiment {results.name}: {len(found)} jobs in {duration(wall)}, {busy:.2f} at a time on average. "
        "Time: the sum over jobs. A run that was resumed or repeated counts its last jobs only."
    ]
    columns = ["jobs", "time", "share", "longest job", "processor time", "peak memory"]
    return [
        harness.table("`make run` by stage", ["stage", *columns], by("stage", found), notes, args.clock),
        harness.table("`make run` by rule", ["rule", *columns], by("rule", found)[:12], [], args.clock),
        costs.jobs_table(results, found, args),
        costs.steps_table(args),
    ]


def newest(root: Path) -> Path:
    """The experiment that finished last, or the default one."""
    done = list(root.glob(f"*/{LAST}"))
    return max(done, key=lambda path: path.stat().st_mtime).parents[1] if done else root / "sotu"


def left(found: list[Table]) -> str:
    if len(found) < 2:
        return "unknown until there is a finished run."
    rows = found[1]["rows"]
    top = [f"{row[0]} ({row[3]['value']:.0%})" for row in rows[:3]]
    rest = 1 - sum(row[3]["value"] for row in rows[:3])
    return f"the three largest costs are {', '.join(top)}; all other rules together take {rest:.0%}. {PROFILED}"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--results", type=Path, default=None, help="results/<experiment>; the newest if not given")
    args = settle(parser.parse_args())
    found = tables(args.results or newest(harness.ROOT / "results"), args)
    harness.publish("whole", found, left(found), args.quick)


if __name__ == "__main__":
    main()
