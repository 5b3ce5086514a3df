"""How long the analysis takes: the bootstrap with all fits, and every figure: `python -m benchmarks.analysis`.

The results are synthetic (tests/synthetic.py for the runs, tests/unit/paper_results.py for the figures), of the paper's
design: six sizes, three seeds, and further budgets of the transformer.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.machine import CLOCKS, how, options, settle
from benchmarks.store import Table
from lmu_scaling.analysis.draws import block_sums, make_cells
from lmu_scaling.analysis.fit import fit
from lmu_scaling.analysis.table import read_table, runs_table, usable
from lmu_scaling.paper import render
from lmu_scaling.paper.inputs import modules
from tests import synthetic
from tests.unit import paper_results

DRAWS = 2000
DESIGN = synthetic.Design(
    widths=(48, 64, 92, 120, 144, 204), seeds=(0, 1, 2), budgets={"transformer": (2.0, 5.0, 10.0)}, sequences=2000
)


def bootstrap_table(args: argparse.Namespace, root: Path) -> Table:
    runs = synthetic.write_results(root, DESIGN)
    folder = root / "analysis"
    runs_table(root, runs, folder / "runs.csv", folder / "history.parquet")
    rows = usable(read_table(folder / "runs.csv"))
    outputs = {"fits": folder / "fits.json", "curves": folder / "c.csv", "multipliers": folder / "m.csv"}
    settings = synthetic.settings(draws=DRAWS)
    works: dict[str, Callable[[], Any]] = {
        "resample seeds and test sequences": lambda: make_cells(
            rows, block_sums(root, rows["run"].tolist()), DRAWS, 0.95, 0
        ),
        "the whole verb `fit`: resampling, power, saturating and joint laws, curves, multipliers": lambda: fit(
            folder / "runs.csv", root, synthetic.PAPER, settings, **outputs
        ),
    }
    timings = harness.interleaved(works, rounds=args.rounds, clock=CLOCKS[args.clock])
    title = f"Hierarchical bootstrap, {DRAWS:,} draws"
    cells = [[name, f"{len(runs)} runs", harness.seconds(timing)] for name, timing in timings.items()]
    note = f"Synthetic results of the paper's design, {DESIGN.sequences:,} test sequences; {how(args)}."
    return harness.table(title, ["what", "of", "time"], cells, [note], args.clock)


def figures_table(args: argparse.Namespace, root: Path) -> Table:
    results = paper_results.write(root / "paper", **paper_results.PAPER)
    out = root / "figures"
    works: dict[str, Callable[[], Any]] = {
        name: lambda name=name: render.figure(
            name, results, paper_results.SETTINGS, *(out / f"{name}.{kind}" for kind in ("pdf", "svg", "png", "rst"))
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


def main() -> None:
    args = settle(options(__doc__).parse_args(), rounds=5, quick_rounds=2)
    with tempfile.TemporaryDirectory() as folder:
        tables = [bootstrap_table(args, Path(folder) / "runs"), figures_table(args, Path(folder))]
    slowest = max(tables[1]["rows"][:-1], key=lambda row: row[1]["value"])
    left = (
        f"the slowest figure is {slowest[0]} ({slowest[1]['value']:.1f} s), and each figure is a process that imports "
        "Matplotlib anew; the fits of the joint law are the larger part of the bootstrap."
    )
    harness.publish("analysis", tables, left, args.quick)


if __name__ == "__main__":
    main()
