"""Stages corpus and tokens against the bare tokenizer and against the usual recipe, in one interleaved run.

    python -m benchmarks.make_owt2 --megabytes 420 --out benchmarks/.cache/owt2.jsonl.zst.tar
    python -m benchmarks.data --archive benchmarks/.cache/owt2.jsonl.zst.tar

What is measured is in data_processes.py. Throughput is in bytes of text. Ratios are made of CPU seconds: on a shared
machine they are steadier than wall time. "Start-up apart": without what every job pays once (imports, tokenizers),
which the difference between a large and a small corpus does not contain.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.data_processes import Facts, bare, fetch, first_members, pieces, stages, usual
from benchmarks.store import Cell, Table, cell, is_cell
from lmu_scaling.config import load

ENGINES = ("tiktoken", "fastokens")
USUAL = "`datasets.map` + tiktoken + memmap"
EACH = "Corpus and tokens: each measurement"
SIZES = {"small": 0.04, "middle": 0.24}  # shares of the archive; the usual recipe, which is slow, gets the middle one
# Wall times are worth showing only if nobody else computes; the load counts this benchmark's own last minute too.
CALM = 1.0
Key = tuple[str, str, int]  # kind, engine, processes
Seen = dict[Key, list[Facts]]


def measure(archive: Path, scratch: Path, repeats: int) -> Seen:
    """Everything in turns, as often as asked."""
    whole = fetch(archive, scratch)
    sources = {name: first_members(whole, share, scratch / f"{name}.json") for name, share in SIZES.items()}
    sources["stages"] = whole
    seen: Seen = {}

    def note(kind: str, engine: str, processes: int, facts: Facts) -> None:
        seen.setdefault((kind, engine, processes), []).append(facts | {"load": os.getloadavg()[0]})
        print(f"{kind} {engine} {processes}: {facts['cpu']:.1f} s CPU, {facts['wall']:.1f} s wall", flush=True)

    def staged(kind: str, engine: str, parts: int) -> None:
        shutil.rmtree(scratch / "stages", ignore_errors=True)
        note(kind, engine, parts, stages(sources[kind], scratch / "stages", engine, parts))

    text_bytes = bare(sources["middle"], "fastokens", 1)["bytes"]
    for _ in range(repeats):
        for engine in ENGINES:
            note("bare", engine, 1, bare(whole, engine, 1))
            for kind, parts in (("stages", 1), ("small", 1), ("stages", 2), ("small", 2), ("middle", 1)):
                staged(kind, engine, parts)
        shutil.rmtree(scratch / "usual", ignore_errors=True)
        note("usual", "tiktoken", 1, usual(sources["middle"], scratch / "usual", 1) | {"bytes": text_bytes})
        note("pieces", "fastokens", 1, pieces(sources["middle"], "fastokens"))
    digests = {f["digest"] for engine in ENGINES for parts in (1, 2) for f in seen["stages", engine, parts]}
    assert len(digests) == 1, "neither the number of workers nor the engine may change the shards"
    return seen


# Ratios --------------------------------------------------------------------------------------------------------------


def per_byte(large: Facts, small: Facts, key: str = "cpu") -> float:
    """Seconds per byte, start-up apart."""
    return (large[key] - small[key]) / (large["bytes"] - small["bytes"])


def speed(slow: Facts, fast: Facts, key: str = "cpu") -> float:
    """How many times as many bytes per second `fast` gets through."""
    return (slow[key] / slow["bytes"]) / (fast[key] / fast["bytes"])


def over_repeats(function: Callable[..., float], *groups: list[Facts], **words: Any) -> Cell:
    """Median and quartiles of what each repeat gives."""
    found = tuple(function(*facts) for facts in zip(*groups, strict=True))
    return cell(statistics.median(found), *harness.quartiles(found), **words)


def paper_engine() -> str:
    """The engine of the preset `paper`: the one that a corpus of the recipe's size would be read with."""
    preset = harness.ROOT / "workflow" / "presets" / "paper.yaml"
    return load(harness.ROOT / "config.yaml", preset).tokens.engine


def column(seen: Seen, engine: str) -> dict[tuple[str, str], Cell | None]:
    """Every comparison of one engine, by what is compared with what."""
    one, two, small, halves, alone = (
        seen[kind, engine, processes]
        for kind, processes in (("stages", 1), ("stages", 2), ("small", 1), ("small", 2), ("bare", 1))
    )
    recipe = seen["usual", "tiktoken", 1]
    calm = all(f["load"] < CALM + n for group, n in ((one, 1), (two, 2)) for f in group)
    peak, peak_small = (max(f["rss"] for f in group) for group in (one, small))
    times: dict[str, Any] = {"better": "higher", "unit": "×"}
    judged = "data_usual" if engine == paper_engine() else ""
    return {
        ("throughput of the stages, start-up apart", "the engine alone, texts in memory"): over_repeats(
            lambda a, b, c: a["cpu"] / a["bytes"] / per_byte(b, c), alone, one, small, **times, bar="data_bare"
        ),
        ("the same, start-up included", "the engine alone, texts in memory"): over_repeats(speed, alone, one, **times),
        ("throughput of the stages", USUAL): over_repeats(speed, recipe, one, **times, bar=judged),
        ("the engine alone: the ceiling", USUAL): over_repeats(speed, recipe, alone, **times),
        ("two parts on two cores, wall time", "one part on one core; ideal: 2"): over_repeats(
            lambda a, b: speed(a, b, "wall"), one, two, **times
        )
        if calm
        else None,
        ("the same, longest chain of jobs in CPU seconds, start-up apart", "one part on one core; ideal: 2"): (
            over_repeats(
                lambda a, b, c, d: per_byte(a, c, "critical") / per_byte(b, d, "critical"),
                *(one, two, small, halves),
                **times,
            )
        ),
        ("peak memory of the largest process", "1 GB"): cell(peak / 1e9, better="lower", unit=" GB", bar="data_memory"),
        ("growth of that peak", "a twentieth of the corpus"): cell(
            peak / peak_small - 1, better="lower", unit="%", bar="data_flat"
        ),
        ("start-up of the four jobs of one part", "–"): over_repeats(
            lambda b, c: c["cpu"] - per_byte(b, c) * c["bytes"], one, small, better="lower", unit=" s"
        ),
    }


def comparisons(seen: Seen) -> Table:
    columns = {engine: column(seen, engine) for engine in ENGINES}
    rows = [[*pair, *(columns[engine][pair] for engine in ENGINES)] for pair in columns[ENGINES[0]]]
    notes = [
        f"CPU seconds on one core unless it says otherwise; medians of {len(seen['stages', 'tiktoken', 1])} repeats. "
        "Neither the number of processes nor the engine changed the shards' digest.",
        "The recipe calls tiktoken too: with that engine no pipeline can be faster than bare tiktoken is. Against the "
        f"recipe the bar is judged with {paper_engine()}, which the preset `paper` uses.",
    ]
    if any(entry is None for row in rows for entry in row):
        notes.append("Wall time on two cores is left out: other work shared the machine.")
    return harness.table("Corpus and tokens: what against what", ["what", "against", *ENGINES], rows, notes, "cpu")


# Each by itself ------------------------------------------------------------------------------------------------------

KINDS = {
    "bare": "the engine alone, texts in memory",
    "stages": "all stages",
    "middle": "all stages, a quarter of the corpus",
    "small": "all stages, a twentieth",
    "usual": USUAL,
}


def each(seen: Seen) -> Table:
    rows: list[list[Any]] = []
    for (kind, engine, processes), facts in seen.items():
        if kind not in KINDS:
            continue
        size = facts[0]["bytes"] / 1e6
        row: list[Any] = [KINDS[kind], engine, processes, f"{size:.3g} MB"]
        row += [over_repeats(lambda f: f["cpu"], facts, better="lower", unit=" s")]
        row += [over_repeats(lambda f: f["bytes"] / 1e6 / f["cpu"], facts, better="higher")]
        row += [cell(max(f["rss"] for f in facts) / 1e6, better="lower", unit=" MB") if "rss" in facts[0] else None]
        row += [f"{facts[0][key] / 1e6:.3g} MB" if key in facts[0] else None for key in ("temporary", "kept")]
        rows.append(row)
    columns = ["what", "engine", "processes", "text", "CPU time", "MB per CPU second", "peak memory of a process"]
    columns += ["temporary files", "kept files"]
    notes = [
        "Stages: all jobs from .jsonl.zst to verified shards with their manifests, filters length and exact_duplicates."
        " Temporary: part files, or the recipe's Arrow files. Kept: shards, or its memmap."
    ]
    return harness.table(EACH, columns, rows, notes, "cpu")


def costs(seen: Seen) -> Table:
    """Where a megabyte's time goes with the fast engine: the steps one by one, then the jobs as a whole."""
    alone = seen["pieces", "fastokens", 1]
    unit: dict[str, Any] = {"better": "lower", "unit": " ms"}
    rows: list[list[Any]] = [
        [name, over_repeats(lambda f, name=name: f["spent"][name] / f["bytes"] * 1e9, alone, **unit)]
        for name in alone[0]["spent"]
    ]
    for job in ("filter", "tokenise", "manifest"):
        whole, small = ([f | f["steps"] for f in seen[kind, "fastokens", 1]] for kind in ("stages", "small"))
        rows.append(
            [
                f"job {job}, start-up apart",
                over_repeats(lambda a, b, job=job: 1e9 * per_byte(a, b, job), whole, small, **unit),
            ]
        )
    notes = [
        "The first five rows are single steps, each by itself, on a quarter of the archive. sha256 runs five times "
        "over the ids: shard, shard and stream when they are merged, and the manifests of the jobs that write and read "
        "a part."
    ]
    return harness.table("fastokens: CPU time per megabyte of text", ["step", "time"], rows, notes, "cpu")


def left(comparison: Table, cost: Table) -> str:
    """What the slower share consists of."""
    share = comparison["rows"][0][2 + ENGINES.index("fastokens")]["value"]
    spent = {row[0]: row[1]["value"] for row in cost["rows"]}
    engine, unavoidable = spent["engine"], spent["read and decompress (zstd)"] + spent["parse (JSON)"]
    return (
        f"with fastokens the stages keep {share:.0%} of the bare engine's throughput. A megabyte costs the engine "
        f"{engine:.1f} ms, decompression and JSON another {unavoidable:.1f} ms, so that more than "
        f"{engine / (engine + unavoidable):.0%} is out of reach for anything that reads this format; the rest is "
        "filters, hashes, checksums and files."
    )


# Growth --------------------------------------------------------------------------------------------------------------


def growth(stored: list[Table]) -> list[list[Any]]:
    """Exponents of CPU time and of memory against bytes of text, from what `each` has stored."""
    table = next((table for table in stored if table["title"] == EACH), None)
    found: list[list[Any]] = []
    for engine in ENGINES if table else ():
        assert table is not None
        rows = {row[0]: row for row in table["rows"] if row[1] == engine and row[2] == 1}
        chosen = [rows[KINDS[kind]] for kind in ("small", "middle", "stages")]
        sizes = [float(row[3].removesuffix(" MB")) for row in chosen]
        for what, place, ideal in (("CPU time", 4, 1), ("peak memory", 6, 0)):
            values = [row[place]["value"] for row in chosen if is_cell(row[place])]
            apart = exponent(sizes[1:], [v - fixed(sizes[:2], values[:2]) for v in values[1:]]) if ideal else None
            spans = f"{sizes[0]:.0f} … {sizes[-1]:.0f} MB"
            found.append([engine, what, spans, exponent(sizes, values), apart, ideal])
    return found


def exponent(sizes: list[float], values: list[float]) -> Cell:
    """Log–log slope from the first to the last."""
    slope = math.log(values[-1] / values[0]) / math.log(sizes[-1] / sizes[0])
    return cell(slope, better="lower")


def fixed(sizes: list[float], values: list[float]) -> float:
    """What the line through two points costs at size zero."""
    return values[0] - sizes[0] * (values[1] - values[0]) / (sizes[1] - sizes[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="kept apart from the stored results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.archive.parent) as scratch:
        seen = measure(args.archive.resolve(), Path(scratch).resolve(), 1 if args.quick else args.repeats)
    comparison, cost = comparisons(seen), costs(seen)
    harness.publish("data", [comparison, each(seen), cost], left(comparison, cost), args.quick)


if __name__ == "__main__":
    main()
