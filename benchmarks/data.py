"""Stages corpus and tokens against the tokenizer alone and against the usual recipe, in one interleaved run.

    python -m benchmarks.data            # on a synthetic OpenWebText2 of 420 MB, made first (owt2.py)
    python -m benchmarks.data --quick    # 40 MB, one round

The measured processes are in data_jobs.py. Throughput is in bytes of text. Ratios are of CPU seconds, which vary less
than wall time on a shared machine. "Start-up apart": without the fixed cost of a job (imports, tokenizers), which
cancels in the difference between a large and a small corpus.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness, owt2
from benchmarks.data_jobs import Facts, alone, fetch, first_members, stages, usual_recipe
from benchmarks.store import CACHE, Cell, Table, cell
from lmu_scaling.config import load

ENGINES = ("tiktoken", "fastokens")
USUAL = "`datasets.map` + tiktoken + memmap"
EACH = "Corpus and tokens: each measurement"
SIZES = {"small": 0.04, "middle": 0.24}  # shares of the archive; the usual recipe is slow and gets the middle one
STARTED = 50e6  # bytes of text after which no job still fills its buffers; peaks vary by 2 MB, start-up takes 20 MB
QUIET = 1.0  # wall times are shown only below this load plus the number of our own processes
Key = tuple[str, str, int]  # kind, engine, processes
Seen = dict[Key, list[Facts]]


def run_all(archive: Path, scratch: Path, rounds: int) -> Seen:
    """Everything in turns, `rounds` times."""
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

    text_bytes = alone("bare", sources["middle"], "fastokens")["bytes"]
    for _ in range(rounds):
        for engine in ENGINES:
            facts = alone("bare", whole, engine)
            del facts["rss"]  # it holds all texts
            note("bare", engine, 1, facts)
            for kind, parts in (("stages", 1), ("small", 1), ("stages", 2), ("small", 2), ("middle", 1)):
                staged(kind, engine, parts)
        shutil.rmtree(scratch / "usual", ignore_errors=True)
        note("usual", "tiktoken", 1, usual_recipe(sources["middle"], scratch / "usual") | {"bytes": text_bytes})
        note("pieces", "fastokens", 1, alone("pieces", sources["middle"], "fastokens"))
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
    """The engine of the preset `paper`."""
    preset = harness.ROOT / "workflow" / "presets" / "paper.yaml"
    return load(harness.ROOT / "config.yaml", preset).tokens.engine


def column(seen: Seen, engine: str) -> dict[tuple[str, str], Cell | None]:
    """Every comparison of one engine, by what is compared with what."""
    one, two, small, halves, alone = (
        seen[kind, engine, processes]
        for kind, processes in (("stages", 1), ("stages", 2), ("small", 1), ("small", 2), ("bare", 1))
    )
    recipe = seen["usual", "tiktoken", 1]
    quiet = all(f["load"] < QUIET + n for group, n in ((one, 1), (two, 2)) for f in group)
    middle = seen["middle", engine, 1]
    peak, peak_middle = (max(f["rss"] for f in group) for group in (one, middle))
    times: dict[str, Any] = {"better": "higher", "unit": "×"}
    judged = "data_usual" if engine == paper_engine() else ""
    return {
        ("throughput of the stages, start-up apart", "the engine alone, texts in memory"): over_repeats(
            lambda a, b, c: a["cpu"] / a["bytes"] / per_byte(b, c), alone, one, small, **times, target="data_bare"
        ),
        ("the same, start-up included", "the engine alone, texts in memory"): over_repeats(speed, alone, one, **times),
        ("throughput of the stages", USUAL): over_repeats(speed, recipe, one, **times, target=judged),
        ("the engine alone: the ceiling", USUAL): over_repeats(speed, recipe, alone, **times),
        ("two parts on two cores, wall time", "one part on one core; ideal: 2"): over_repeats(
            lambda a, b: speed(a, b, "wall"), one, two, **times
        )
        if quiet
        else None,
        ("the same, longest chain of jobs in CPU seconds, start-up apart", "one part on one core; ideal: 2"): (
            over_repeats(
                lambda a, b, c, d: per_byte(a, c, "critical") / per_byte(b, d, "critical"),
                *(one, two, small, halves),
                **times,
            )
        ),
        ("peak memory of the largest process", "1 GB"): cell(
            peak / 1e9, better="lower", unit=" GB", target="data_memory"
        ),
        ("growth of that peak with the text", "a quarter of the corpus"): cell(
            1e3 * (peak - peak_middle) / (one[0]["bytes"] - middle[0]["bytes"]),
            better="lower",
            unit=" MB/GB",
            target="data_flat",
        )
        if middle[0]["bytes"] >= STARTED
        else None,
        ("start-up of the four jobs of one part", "–"): over_repeats(
            lambda b, c: c["cpu"] - per_byte(b, c) * c["bytes"], one, small, better="lower", unit=" s"
        ),
    }


def comparisons(seen: Seen) -> Table:
    columns = {engine: column(seen, engine) for engine in ENGINES}
    rows = [[*pair, *(columns[engine][pair] for engine in ENGINES)] for pair in columns[ENGINES[0]]]
    notes = [
        f"CPU seconds on one core unless it says otherwise; medians of {len(seen['stages', 'tiktoken', 1])} rounds. "
        "Neither the number of processes nor the engine changed the shards' digest.",
        "The recipe also calls tiktoken; with that engine no pipeline can be faster than tiktoken alone. The target "
        f"against the recipe refers to {paper_engine()}, which the preset `paper` uses.",
    ]
    missing = {row[0] for row in rows if None in row}
    if any("wall time" in what for what in missing):
        notes.append("Wall time on two cores is omitted: other work shared the machine.")
    if any("growth" in what for what in missing):
        notes.append("Growth of memory is omitted: with so little text it would be that of start-up.")
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
    """CPU time per megabyte with the fast engine: single steps, then whole jobs."""
    alone = seen["pieces", "fastokens", 1]
    unit: dict[str, Any] = {"better": "lower", "unit": " ms"}
    rows: list[list[Any]] = [
        [name, over_repeats(lambda f, name=name: f["spent"][name] / f["bytes"] * 1e9, alone, **unit)]
        for name in alone[0]["spent"]
    ]
    for job in ("encode", "shard", "index"):
        whole, small = ([f | f["steps"] for f in seen[kind, "fastokens", 1]] for kind in ("stages", "small"))
        rows.append(
            [
                f"job {job}, start-up apart",
                over_repeats(lambda a, b, job=job: 1e9 * per_byte(a, b, job), whole, small, **unit),
            ]
        )
    notes = [
        "The first five rows are single steps, each timed alone, on a quarter of the archive. sha256 runs five times "
        "over the ids: for the shard, for shard and stream when they are merged, and for the manifests of the jobs "
        "that write and read a part."
    ]
    return harness.table("fastokens: CPU time per megabyte of text", ["step", "time"], rows, notes, "cpu")


def remaining(comparison: Table, cost: Table) -> str:
    """What the lost share of the throughput consists of."""
    share = comparison["rows"][0][2 + ENGINES.index("fastokens")]["value"]
    spent = {row[0]: row[1]["value"] for row in cost["rows"]}
    engine, unavoidable = spent["engine"], spent["read and decompress (zstd)"] + spent["parse (JSON)"]
    return (
        f"with fastokens the stages reach {share:.0%} of the throughput of the engine alone. A megabyte costs the "
        f"engine {engine:.1f} ms, decompression and JSON another {unavoidable:.1f} ms, so that nothing that reads this "
        f"format can reach more than {engine / (engine + unavoidable):.0%}. The rest is filters, hashes, checksums "
        "and files."
    )


def measure(args: argparse.Namespace) -> harness.Section:
    archive = CACHE / ("quick.jsonl.zst.tar" if args.quick else "owt2.jsonl.zst.tar")
    owt2.make(archive, megabytes=40 if args.quick else 420, members=40, seed=0)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        seen = run_all(archive, Path(scratch), args.rounds)
    comparison, cost = comparisons(seen), costs(seen)
    return [comparison, each(seen), cost], remaining(comparison, cost)


if __name__ == "__main__":
    harness.run_section("data", measure, __doc__, rounds=3, quick=1)
