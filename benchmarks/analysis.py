"""Time of the analysis: the bootstrap with all fits, and every figure.

    python -m benchmarks.analysis

The results are synthetic (tests/synthetic.py), of the paper's design: six sizes, three seeds, and further budgets of
the transformer.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import CLOCKS, conditions
from benchmarks.store import Table
from lmu_scaling.analysis.bootstrap import block_sums, make_cells
from lmu_scaling.analysis.fit import fit
from lmu_scaling.analysis.table import read_table, table, usable
from lmu_scaling.paper import render, style
from lmu_scaling.paper.inputs import modules
from tests import synthetic

DRAWS = 2000
DESIGN = synthetic.Design(
    widths=(48, 64, 92, 120, 144, 204), seeds=(0, 1, 2), budgets={"transformer": (2.0, 5.0, 10.0)}, sequences=2000
)


def bootstrap_table(args: argparse.Namespace, root: Path) -> Table:
    runs = synthetic.write_results(root, DESIGN)
    folder = root / "analysis"
    table(root, runs, folder / "runs.csv", folder / "history.parquet")
    rows = usable(read_table(folder / "runs.csv"))
    outputs = {
        "fits": folder / "fits.json",
        "curves": folder / "c.csv",
        "multipliers": folder / "m.csv",
        "frontier": folder / "f.csv",
    }
    works: dict[str, Callable[[], Any]] = {
        "resample seeds and test sequences": lambda: make_cells(
            rows, block_sums(root, rows["run"].tolist()), DRAWS, 0.95, 0
        ),
        "the whole job `fit`: resampling, power, saturating and joint laws, curves, multipliers": lambda: fit(
            folder / "runs.csv", root, **synthetic.FIT | {"draws": DRAWS}, **outputs
        ),
    }
    timings = harness.interleaved(works, rounds=args.rounds, clock=CLOCKS[args.clock])
    title = f"Hierarchical bootstrap, {DRAWS:,} draws"
    cells = [[name, f"{len(runs)} runs", harness.seconds(timing)] for name, timing in timings.items()]
    note = f"Synthetic results of the paper's design, {DESIGN.sequences:,} test sequences; {conditions(args)}."
    return harness.table(title, ["what", "of", "time"], cells, [note], args.clock)


def figures_table(args: argparse.Namespace, root: Path) -> Table:
    design = synthetic.SMALL_SCALE if args.quick else synthetic.PAPER_SCALE
    results = synthetic.write_experiment(root / "paper", design)
    out, look = root / "figures", style.Look(**synthetic.FIGURE_SETTINGS)
    works: dict[str, Callable[[], Any]] = {
        name: lambda name=name: render.figure(
            name, results, look, *(out / f"{name}.{kind}" for kind in ("pdf", "svg", "png", "rst"))
        )
        for name in modules("figure")
    }
    rounds, warm = (1, 0) if args.quick else (min(args.rounds, 3), 1)
    timings = harness.interleaved(works, rounds=rounds, warm=warm, clock=CLOCKS[args.clock])
    rows = [[name, harness.seconds(timing)] for name, timing in timings.items()]
    whole = tuple(map(sum, zip(*(timing.seconds for timing in timings.values()), strict=True)))
    rows.append(["all figures", harness.seconds(harness.Timing(whole))])
    note = "Reading the tables, drawing, and writing PDF, SVG and PNG, without the start of Python."
    return harness.table("Figures", ["figure", "time"], rows, [note], args.clock)


def measure(args: argparse.Namespace) -> harness.Section:
    with tempfile.TemporaryDirectory() as folder:
        tables = [bootstrap_table(args, Path(folder) / "runs"), figures_table(args, Path(folder))]
    slowest = max(tables[1]["rows"][:-1], key=lambda row: row[1]["value"])
    return tables, (
        f"the slowest figure is {slowest[0]} ({slowest[1]['value']:.1f} s), and each figure is a process that imports "
        "Matplotlib again. Most of the bootstrap's time goes to the fits of the joint law."
    )


if __name__ == "__main__":
    harness.run_section("analysis", measure, __doc__, rounds=5, quick=2)
