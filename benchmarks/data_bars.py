"""The data stages against their bars, and their growth with the corpus, from the table that benchmarks/data.py stores.

Rows of that table are named "<kind> <engine> <workers>": `bare`, `stages`, `small` (a twentieth of the corpus) and
`usual` (the datasets recipe). What is missing there is missing here.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.store import Table, cell
from lmu_scaling.config import load

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
        "The usual recipe calls tiktoken too: with that engine no pipeline can be faster than bare tiktoken is."
        f" Against the recipe the bar is judged with {paper_engine()}, which the preset `paper` uses.",
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


def paper_engine() -> str:
    """The engine of the preset `paper`: the one that a corpus of the recipe's size would be read with."""
    root = Path(__file__).resolve().parents[1]
    return load(root / "config.yaml", root / "workflow" / "presets" / "paper.yaml").tokens.engine


def _usual(rows: Rows) -> list[list[Any]]:
    """The stages, and the bare tokenizer as their ceiling, against the recipe; one engine is judged."""
    usual, judged = rows.get("usual tiktoken 1"), paper_engine()
    found = []
    for engine in ENGINES:
        for kind, name in (("stages", f"stages, {engine}, 1 core(s)"), ("bare", f"bare {engine}: the ceiling")):
            ours = rows.get(f"{kind} {engine} 1")
            if usual and ours:
                bar = "data_usual" if kind == "stages" and engine == judged else ""
                result = cell(ours["mb_per_cpu_s"] / usual["mb_per_cpu_s"], better="higher", unit="×", bar=bar)
                found.append([name, "datasets.map + tiktoken + memmap", result])
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
