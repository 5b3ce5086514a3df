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

from benchmarks import data_bars, harness, store
from benchmarks.figures import POINTS, SLOPES
from benchmarks.machine import options, settle
from benchmarks.store import Table, cell
from benchmarks.workflow import dry_runs
from lmu_scaling.analysis.complexity import complexity, slope

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
        [row.layer, row.n, cell(row.seconds, better="lower"), cell(row.bytes, better="lower")]
        for row in measured.itertuples()
    ]
    exponents = [[_plain(value) for value in row] for row in fitted[COLUMNS].itertuples(index=False)]
    notes = [
        "One layer, d = 48, q = 60, batch 1, forward pass, one thread, fastest of several passes in processor seconds; "
        "attention: its n × n matrix materialised; attention_flash: torch's SDPA, which never holds it."
    ]
    law = [
        "Log–log slopes over the longest three octaves, with 95 % intervals; `expected`: what the stated term gives."
    ]
    return [
        harness.table(SLOPES, COLUMNS, exponents, law, args.clock),
        harness.table(POINTS, ["layer", "n", "seconds", "bytes"], cost, notes, args.clock),
    ]


def _plain(value: object) -> object:
    """NumPy's numbers as Python's; two digits are all that an exponent deserves."""
    if isinstance(value, float | np.floating):
        return round(float(value), 2) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def with_corpus(args: argparse.Namespace) -> Table:
    rows = data_bars.growth(store.load().get("data", {}).get("tables", []))
    notes = ["CPU seconds and peak memory of all stages, from the stored results of `benchmarks.data`, two sizes."]
    if not rows:
        notes = ["`benchmarks.data` has not been run yet."]
    columns = ["what", "from … to", "quantity", "exponent", "ideal"]
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
