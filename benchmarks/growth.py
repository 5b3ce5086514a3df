"""How costs grow with n, with the corpus and with the number of runs; exponents fitted: `python -m benchmarks.growth`.

With n: the measurement behind Table 1 (lmu_scaling/analysis/complexity.py), up to 8,192 tokens. With the corpus: from
the last run of benchmarks.data. With runs: dry runs of the workflow.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from benchmarks import data, harness, store
from benchmarks.figures import POINTS, SLOPES
from benchmarks.machine import options, settle
from benchmarks.store import INTERVAL, Table, cell
from benchmarks.workflow import dry_runs
from lmu_scaling.analysis.complexity import complexity, slope
from lmu_scaling.paper.style import LAYERS

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
COLUMNS = ["layer", "quantity", "slope", "low", "high", "stated", "expected", "n_min", "n_max"]


def with_n(args: argparse.Namespace) -> list[Table]:
    lengths = LENGTHS[:4] if args.quick else LENGTHS
    settings = SimpleNamespace(lengths=lengths, d=48, q=60, repeats=1 if args.quick else 5)
    with tempfile.TemporaryDirectory() as folder:
        points, slopes = Path(folder) / "points.csv", Path(folder) / "slopes.csv"
        complexity(settings, points, slopes, device="cpu", threads=1)
        measured, fitted = pd.read_csv(points), pd.read_csv(slopes)
    cost = [
        [row.layer, row.n, cell(row.seconds, better="–"), cell(row.bytes, better="–")] for row in measured.itertuples()
    ]
    exponents = [[_plain(value) for value in row] for row in fitted[COLUMNS].itertuples(index=False)]
    behind = [
        harness.table(SLOPES, COLUMNS, exponents, [], args.clock),
        harness.table(POINTS, ["layer", "n", "seconds", "bytes"], cost, [], args.clock),
    ]
    return [_exponents(measured, fitted, args), *(table | {"behind": True} for table in behind)]


def _exponents(measured: pd.DataFrame, fitted: pd.DataFrame, args: argparse.Namespace) -> Table:
    """For readers: a row per layer; the numbers behind it are drawn."""
    longest = measured[measured["n"] == measured["n"].max()].set_index("layer")
    rows = []
    for layer, laws in fitted.groupby("layer", sort=False):
        of = laws.set_index("quantity")
        row: list[object] = [LAYERS[str(layer)][0]]
        for quantity, column, scale, unit in (("compute", "seconds", 1e3, " ms"), ("memory", "bytes", 1e-6, " MB")):
            law = of.loc[quantity]
            better = "lower" if "lmu" in str(layer) else "–"
            row += [cell(law.slope, law.low, law.high, better=better, unit=INTERVAL)]
            row += [f"{law.expected:.2f}: {law.stated}"]
            row += [cell(scale * float(longest.loc[layer, column]), better=better, unit=unit)]  # type: ignore[index, arg-type]
        rows.append(row)
    most = f"at n = {longest['n'].iloc[0]:,}"
    columns = ["layer", "time, exponent", "expected", f"time {most}", "memory, exponent", "expected", f"memory {most}"]
    notes = [
        "One layer, d = 48, q = 60, batch 1, forward pass, one thread, fastest of several passes in processor seconds. "
        f"Log–log slopes over n = {int(fitted['n_min'].iloc[0]):,} to {int(fitted['n_max'].iloc[0]):,} with 95 % "
        "intervals; expected: the slope that the stated term has there. All points are in the figure above."
    ]
    return harness.table("Growth with n", columns, rows, notes, args.clock)


def _plain(value: object) -> object:
    """NumPy's numbers as Python's; two digits are all that an exponent deserves."""
    if isinstance(value, float | np.floating):
        return round(float(value), 2) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def with_corpus(args: argparse.Namespace) -> Table:
    stored = store.load(store.QUICK if args.quick else store.RESULTS)
    rows = data.growth(stored.get("data", {}).get("tables", []))
    notes = [
        "All stages on one core, from the results of `benchmarks.data` at three sizes. Start-up apart: between the two "
        "largest, without what the line through the two smallest costs at size zero."
    ]
    if not rows:
        notes = ["`benchmarks.data` has not been run yet."]
    columns = ["engine", "quantity", "text", "exponent", "start-up apart", "ideal"]
    return harness.table("Growth with the corpus", columns, rows, notes, args.clock)


def with_runs(args: argparse.Namespace) -> Table:
    numbers = (10, 30, 100) if args.quick else (10, 100, 1000)
    with tempfile.TemporaryDirectory() as folder:
        timings = dry_runs(Path(folder), numbers, args)
    rows: list[list[object]] = [
        [f"dry run with {runs:,} runs ({3 * runs:,} jobs and a few)", harness.seconds(timings[runs])]
        for runs in numbers
    ]
    seconds = np.array([timings[runs].median for runs in numbers])
    whole = slope(np.array(numbers, float), seconds)["slope"]
    last = np.log(seconds[-1] / seconds[-2]) / np.log(numbers[-1] / numbers[-2])
    each = (seconds[-1] - seconds[0]) / (numbers[-1] - numbers[0])
    rows.append([f"exponent, {numbers[0]} to {numbers[-1]:,} runs", cell(float(whole), better="lower")])
    rows.append([f"exponent, {numbers[-2]} to {numbers[-1]:,} runs", cell(float(last), better="lower")])
    rows.append(["each further run", cell(1e3 * float(each), better="lower", unit=" ms")])
    note = "One variant, one size, as many seeds; each run is three jobs. Ideal: at most 1."
    return harness.table("Growth with the number of runs", ["what", "result"], rows, [note], args.clock)


def main() -> None:
    args = settle(options(__doc__).parse_args(), rounds=3, quick_rounds=1)
    tables = [*with_n(args), with_corpus(args), with_runs(args)]
    left = (
        "the parallel LMU holds its FFTs of length 2n for all channels of a sequence, although a chunked form would "
        "need a constant amount per chunk; the workflow's graph is made by Snakemake, whose growth we take as it is."
    )
    harness.publish("growth", tables, left, args.quick)


if __name__ == "__main__":
    main()
