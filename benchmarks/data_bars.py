"""The data stages against their bars, and their growth with the corpus, from the table that benchmarks/data.py stores.

Rows of that table are named "<kind> <engine> <workers>": `bare`, `stages`, `small` (a twentieth of the corpus) and
`usual` (the datasets recipe). What is missing there is missing here.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.store import Table, cell

ENGINES = ("fastokens", "tiktoken")
Rows = dict[str, dict[str, Any]]


def rows_of(tables: list[Table]) -> Rows:
    """The rows by name, as dictionaries."""
    found: Rows = {}
    for table in tables:
        if table["columns"][:1] == ["what"]:
            for row in table["rows"]:
                values = row if isinstance(row, dict) else dict(zip(table["columns"], row, strict=True))
                found[values["what"]] = values
    return found


def tables(stored: list[Table]) -> list[Table]:
    rows = rows_of(stored)
    against = [*_bare(rows), *_usual(rows), *_memory(rows)]
    if not against:
        return []
    notes = [
        "CPU seconds per byte of text on as many cores; memory is that of the largest process.",
        "The usual recipe calls tiktoken: with that engine, the bare tokenizer is the ceiling of any pipeline.",
    ]
    return [
        {"title": "Data stages against their rivals", "columns": ["what", "against", "result"], "rows": against}
        | {"notes": notes, "machine": stored[0].get("machine")}
    ]


def _bare(rows: Rows) -> list[list[Any]]:
    found = []
    for engine in ENGINES:
        for workers in (1, 2):
            share = rows.get(f"stages {engine} {workers}", {}).get("of_bare_cpu")
            if share is not None:
                result = cell(share, better="higher", unit="×", bar="data_bare")
                found.append([f"stages, {engine}, {workers} core(s)", "the bare tokenizer, texts in memory", result])
    return found


def _usual(rows: Rows) -> list[list[Any]]:
    found = []
    for engine in ENGINES:
        for workers in (1, 2):
            usual, ours = rows.get(f"usual tiktoken {workers}"), rows.get(f"stages {engine} {workers}")
            if usual and ours:
                times = ours["mb_per_cpu_s"] / usual["mb_per_cpu_s"]
                result = cell(times, better="higher", unit="×", bar="data_usual")
                found.append([f"stages, {engine}, {workers} core(s)", "datasets.map + tiktoken + memmap", result])
    return found


def _memory(rows: Rows) -> list[list[Any]]:
    found = []
    for engine in ENGINES:
        small, large = rows.get(f"small {engine} 1"), rows.get(f"stages {engine} 1")
        if small and large:
            peaks = [row["peak_mb_per_process"] for row in (small, large)]
            sizes = f"{small['text_mb']:.0f} and {large['text_mb']:.0f} MB of text"
            growth = cell(peaks[1] / peaks[0] - 1, better="lower", unit="%", bar="data_flat")
            found.append([f"peak memory, {engine}: growth", sizes, growth])
            most = cell(max(peaks) / 1e3, better="lower", unit=" GB", bar="data_memory")
            found.append([f"peak memory, {engine}", "1 GB", most])
    return found


def growth(stored: list[Table]) -> list[list[Any]]:
    """Exponents of CPU time and memory against bytes of text, from the small corpus to the large one."""
    rows, found = rows_of(stored), []
    for engine in ENGINES:
        small, large = rows.get(f"small {engine} 1"), rows.get(f"stages {engine} 1")
        if small and large:
            span = math.log(large["text_mb"] / small["text_mb"])
            ends = f"{small['text_mb']:.0f} … {large['text_mb']:.0f} MB of text"
            for what, key in (("time", "cpu_s"), ("memory", "peak_mb_per_process")):
                slope = math.log(large[key] / small[key]) / span
                stated = "1" if what == "time" else "0"
                found.append([f"stages, {engine}", ends, what, cell(slope, better="lower"), stated])
    return found


def left(stored: list[Table]) -> str:
    shares = {name: row["of_bare_cpu"] for name, row in rows_of(stored).items() if row.get("of_bare_cpu") is not None}
    if not shares:
        return "unknown until the stages have been measured."
    worst = min(shares, key=lambda name: shares[name])
    return (
        f"`{worst}` keeps {shares[worst]:.0%} of its bare tokenizer's throughput; the rest is decompression, JSON, "
        "hashing, filters and checksums."
    )
