"""How cost grows with n, with the corpus, with the number of runs and with the number of documents.

    python -m benchmarks.growth            # 15 minutes and 10 GB of disk: duplicates among 17 million documents
    python -m benchmarks.growth --quick

With n: the measurement behind Table 1 (lmu_scaling/analysis/complexity.py), up to 8,192 tokens. With the corpus: from
the stored results of benchmarks.data. With runs: dry runs of the workflow. With documents: memory and time of
`deduplicate` on random signatures with planted copies (3 % exact, 3 % near: 10 % of the MinHash values differ), which
cost as much as real ones.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from lmu_scaling.corpus.layout import part_files

from benchmarks import data, harness, store
from benchmarks.data_jobs import SPLIT, run, verb
from benchmarks.report import POINTS, SLOPES
from benchmarks.store import INTERVAL, Cell, Table, cell, is_cell
from benchmarks.workflow import dry_runs
from lmu_scaling.analysis.complexity import complexity, slope
from lmu_scaling.corpus.minhash import band_name, bands_and_rows
from lmu_scaling.paper.style import LAYERS

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
COLUMNS = ["layer", "quantity", "slope", "low", "high", "stated", "expected", "n_min", "n_max"]
NEAR = {"name": "near_duplicates", "threshold": 0.8, "permutations": 128, "shingle": 5}
EXACT = {"name": "exact_duplicates"}
COPIES, PARTS = 0.03, 64


# With n --------------------------------------------------------------------------------------------------------------


def with_n(args: argparse.Namespace) -> list[Table]:
    lengths = LENGTHS[:4] if args.quick else LENGTHS
    settings = SimpleNamespace(lengths=lengths, d=48, q=60, repeats=1 if args.quick else 5)
    with tempfile.TemporaryDirectory() as folder:
        points, slopes = Path(folder) / "points.csv", Path(folder) / "slopes.csv"
        complexity(settings, points, slopes, device="cpu", threads=1)
        measured, fitted = pd.read_csv(points), pd.read_csv(slopes)
    cost = [[row.layer, row.n, cell(row.seconds), cell(row.bytes)] for row in measured.itertuples()]
    exponents = [[_plain(value) for value in row] for row in fitted[COLUMNS].itertuples(index=False)]
    behind_figure = [
        harness.table(SLOPES, COLUMNS, exponents, [], args.clock),
        harness.table(POINTS, ["layer", "n", "seconds", "bytes"], cost, [], args.clock),
    ]
    return [_exponents(measured, fitted, args), *(table | {"hidden": True} for table in behind_figure)]


def _exponents(measured: pd.DataFrame, fitted: pd.DataFrame, args: argparse.Namespace) -> Table:
    """One row per layer; all points are in the figure."""
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
        "One layer, d = 48, q = 60, batch 1, forward pass, one thread, fastest of several passes in CPU seconds. "
        f"Log–log slopes over n = {int(fitted['n_min'].iloc[0]):,} to {int(fitted['n_max'].iloc[0]):,} with 95 % "
        "intervals; expected: the slope that the stated term has there. All points are in the figure above."
    ]
    return harness.table("Growth with n", columns, rows, notes, args.clock)


def _plain(value: object) -> object:
    """A Python number; exponents are rounded to two digits."""
    if isinstance(value, float | np.floating):
        return round(float(value), 2) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


# With the corpus -----------------------------------------------------------------------------------------------------


def with_corpus(args: argparse.Namespace) -> Table:
    stored = store.load(store.QUICK if args.quick else store.RESULTS).get("data", {}).get("tables", [])
    rows = corpus_exponents(stored)
    note = (
        "All stages on one core, from the results of `benchmarks.data` at three sizes. Start-up apart: between the two "
        "largest, without what the line through the two smallest costs at size zero."
    )
    columns = ["engine", "quantity", "text", "exponent", "start-up apart", "ideal"]
    notes = [note if rows else "`benchmarks.data` has not been run yet."]
    return harness.table("Growth with the corpus", columns, rows, notes, args.clock)


def corpus_exponents(stored: list[Table]) -> list[list[Any]]:
    """Exponents of CPU time and of memory against bytes of text."""
    found: list[list[Any]] = []
    table = next((table for table in stored if table["title"] == data.EACH), None)
    for engine in data.ENGINES if table else ():
        rows = {row[0]: row for row in table["rows"] if row[1] == engine and row[2] == 1}  # type: ignore[index]
        chosen = [rows[data.KINDS[kind]] for kind in ("small", "middle", "stages")]
        sizes = [float(row[3].removesuffix(" MB")) for row in chosen]
        for what, column, ideal in (("CPU time", 4, 1), ("peak memory", 6, 0)):
            values = [row[column]["value"] for row in chosen if is_cell(row[column])]
            apart = exponent(sizes[1:], [v - _at_zero(sizes, values) for v in values[1:]]) if ideal else None
            span = f"{sizes[0]:.0f} … {sizes[-1]:.0f} MB"
            found.append([engine, what, span, exponent(sizes, values), apart, ideal])
    return found


def exponent(sizes: list[float], values: list[float]) -> Cell:
    """Log–log slope from the first to the last."""
    return cell(math.log(values[-1] / values[0]) / math.log(sizes[-1] / sizes[0]), better="lower")


def _at_zero(sizes: list[float], values: list[float]) -> float:
    """Value at size zero of the line through the first two points."""
    return values[0] - sizes[0] * (values[1] - values[0]) / (sizes[1] - sizes[0])


# With runs -----------------------------------------------------------------------------------------------------------


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


# With documents ------------------------------------------------------------------------------------------------------


def make_signatures(folder: Path, documents: int) -> list[int]:
    """Write signature files and counts of PARTS parts; returns the number of planted copies of each kind, by part."""
    folder.mkdir(parents=True)
    bands, rows = bands_and_rows(NEAR["threshold"], NEAR["permutations"])
    planted = []
    for part in range(PARTS):
        rng = np.random.default_rng(part)
        n = documents * (part + 1) // PARTS - documents * part // PARTS
        hashes = rng.integers(0, 2**64, (n, 2), dtype=np.uint64)
        values = rng.integers(0, 2**32, (n, bands * rows), dtype=np.uint32)
        copies = int(n * COPIES)
        hashes[n - copies :] = hashes[:copies]
        values[n - copies :] = values[:copies]
        near = slice(n - 2 * copies, n - copies)
        changed = rng.random((copies, bands * rows)) < 0.1
        values[near] = np.where(changed, values[near], values[copies : 2 * copies])
        table = {band_name(b): values[:, b * rows : (b + 1) * rows] for b in range(bands)}
        lengths = rng.integers(100, 1700, n).astype(np.uint32)
        files = part_files(folder, part)
        np.savez(files["signatures"], hash=hashes, tokens=lengths, bytes=lengths * np.uint32(4), **table)
        counts = {"documents": n, "bytes": 4, "kept_documents": n, "kept_bytes": 4, "dropped": {}}
        files["counts"].write_text(json.dumps(counts | {"bad": {}, "bad_bytes": 0, "bad_examples": []}))
        planted.append(copies)
    return planted


def deduplicate(root: Path, filters: list[dict[str, Any]], target: int) -> dict[str, Any]:
    settings = {"parts": PARTS, "filters": filters, "split": SPLIT, "target_tokens": target, "max_bad_share": 0.0}
    described = {"source": "random", "identity": "random", "members": [{"size": 1}], "expected_documents": None}
    (root / "source.json").write_text(json.dumps(described))
    flags = ["--settings", json.dumps(settings), "--source", root / "source.json"]
    facts = run(verb("deduplicate", *flags, "--parts", root / "parts", "--out", root))
    rows = json.loads((root / "manifest.json").read_text())["filters"]
    return facts | {row["filter"]: row["dropped_documents"] for row in rows}


def with_documents(args: argparse.Namespace) -> Table:
    store.CACHE.mkdir(exist_ok=True)
    rows: list[list[Any]] = []
    for documents in (20_000, 100_000) if args.quick else (1_000_000, 17_000_000):
        with tempfile.TemporaryDirectory(dir=store.CACHE) as scratch:
            root = Path(scratch)
            planted = sum(make_signatures(root / "parts", documents))
            disk = sum(path.stat().st_size for path in (root / "parts").iterdir())
            for filters in ([EXACT], [EXACT, NEAR]):
                facts = deduplicate(root, filters, documents * 500)
                row = [documents, " + ".join(f["name"] for f in filters), facts["rss"] / 1e6, facts["rss"] / documents]
                row += [facts["cpu"], facts["wall"], disk / 1e9]
                rows.append([*row, facts["exact_duplicates"], facts.get("near_duplicates"), planted])
                print(rows[-1], flush=True)
    columns = ["documents", "filters", "peak MB", "bytes per document", "CPU s", "wall s", "signatures GB"]
    notes = [
        "Random signatures with planted copies; memory of the process that decides. 17 million documents are those of "
        "OpenWebText2. Near copies differ in 10 % of their MinHash values, so a few fall below the threshold by chance."
    ]
    columns += ["exact found", "near found", "planted of each"]
    return harness.table("Duplicates at the size of OpenWebText2", columns, rows, notes, "cpu")


def measure(args: argparse.Namespace) -> harness.Section:
    return [*with_n(args), with_corpus(args), with_runs(args), with_documents(args)], (
        "the parallel LMU holds its FFTs of length 2n for all channels of a sequence; a chunked form would need a "
        "constant amount per chunk. The growth with runs is Snakemake's. Signatures take more disk than memory; they "
        "could be compressed, or written as bands."
    )


if __name__ == "__main__":
    harness.run_section("growth", measure, __doc__, rounds=3, quick=1)
