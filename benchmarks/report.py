"""Renders docs/performance.md and its figures from benchmarks/results.json: `python -m benchmarks.report`.

The page begins with the bars that are missed and the numbers that got worse; then one chapter per section.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from benchmarks import figures, store
from benchmarks.bars import Bar, Verdict, judge, verdict
from benchmarks.store import Cell, Table, is_cell
from lmu_scaling.runtime import atomic_write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
SHOWN = 8  # numbers that got worse, in the first lines
QUICK_PAGE = store.QUICK.with_suffix(".md")
SECTIONS = {
    "layer": "Layer",
    "step": "Whole step",
    "data": "Data",
    "duplicates": "Duplicates",
    "loader": "Loader",
    "analysis": "Analysis",
    "workflow": "Workflow",
    "growth": "Growth",
    "whole": "The whole run",
}
MACHINE = {  # in this order; versions follow by their names
    "processor": "{}",
    "cores": "{} cores",
    "memory_gb": "{} GB",
    "threads": "threads: {}",
    "clock": "{} seconds",
    "load": "load {}",
    "sgemm_gflops": "sgemm {} GFLOP/s",
    "fft_gflops": "FFT {} GFLOP/s",
}
MADE = (
    "Made by `make bench` from `benchmarks/results.json`; `python -m benchmarks.<section>` measures one section again."
)
QUICK_MADE = (
    "Made by `make bench-quick`: a taste of each section, few rounds, small sizes. Bars are judged by `make bench`."
)
HEAD = """# Performance

{made}
Rivals are timed in turns within one run: trust the ratios more than the absolute numbers. "±" is half the distance
between the quartiles of the rounds; ▼ marks a number that got worse by more than its spread since it was last stored;
✗ marks a number below its bar.
"""


def build(results: Path, page: Path) -> str:
    sections = store.load(results)
    chapters = {name: sections.get(name, {}).get("tables", []) for name in SECTIONS}
    every = [table for tables in chapters.values() for table in tables]
    shared = in_common([table["machine"] for table in every if table.get("machine")])
    parts = [HEAD.format(made=QUICK_MADE if page == QUICK_PAGE else MADE), summary(judge(every), worse(every))]
    parts += [f"Machine: {machine_line(shared)}.\n"] if shared else []
    parts += pictures(chapters, page)
    for name, tables in chapters.items():
        if tables:
            shown = [without(table, shared) for table in tables if not table.get("behind")]  # … a figure
            parts.append(chapter(SECTIONS[name], shown, sections[name].get("left", ""), sections[name]["measured"]))
        else:
            parts.append(f"## {SECTIONS[name]}\n\nNot measured yet.\n")
    return "\n".join(parts)


# The first lines -----------------------------------------------------------------------------------------------------


def summary(verdicts: dict[str, Verdict], declined: list[str]) -> str:
    missed = [entry for entry in verdicts.values() if entry.word == "missed"]
    unsure = sum(entry.word in ("in part", "not measured") for entry in verdicts.values())
    met = "**All bars that were measured are met.**" if unsure else "**All bars are met.**"
    lines = [f"**Missed:** {line_of(entry)}  " for entry in missed] or [met]
    if unsure:
        lines += ["", f"{unsure} of {len(verdicts)} bars were not measured, or not at every size: see the table."]
    if declined:
        lines += ["", "Worse than when last stored:", "", *(f"* {entry}" for entry in declined[:SHOWN])]
        lines += [f"* … and {len(declined) - SHOWN} more, marked ▼ below"] if len(declined) > SHOWN else []
    lines += ["", "| bar | limit | measured | verdict |", "|---|---|---|---|"]
    for entry in verdicts.values():
        values = ", ".join(amount(value, entry.bar.unit) for value in entry.values) or "–"
        lines.append(f"| {entry.bar.words} | {limit(entry.bar)} | {values} | {entry.word} |")
    return "\n".join(lines) + "\n"


def line_of(entry: Verdict) -> str:
    return f"{entry.bar.words}: {', '.join(amount(v, entry.bar.unit) for v in entry.values)} ({limit(entry.bar)})."


def limit(bar: Bar) -> str:
    return f"{bar.sense} {amount(bar.limit, bar.unit)}"


def worse(tables: list[Table]) -> list[str]:
    return [
        f"{table['title']}, {', '.join(key)}: {amount(entry['value'], entry['unit'])} "
        f"(was {amount(entry['was'], entry['unit'])})"
        for table in tables
        for key, entry in store.cells(table).items()
        if "was" in entry
    ]


def pictures(chapters: dict[str, list[Table]], page: Path) -> list[str]:
    """Draw what can be drawn; the links are relative to the page."""
    folder = page.parent / "figures"
    drawn = figures.draw_all(chapters, folder)
    return [f"![{caption.partition('.')[0]}](figures/{path.name})\n\n{caption}\n" for path, caption in drawn]


# Chapters ------------------------------------------------------------------------------------------------------------


def chapter(title: str, shown: list[Table], left: str, measured: str) -> str:
    """Tables, what is left on the table, and what is particular about the machine here."""
    shared = in_common([table["machine"] for table in shown if table.get("machine")])
    parts = [f"## {title}\n", *(render(without(table, shared), level=3) for table in shown)]
    if left:
        parts.append(f"**Left on the table:** {left}\n")
    return "\n".join([*parts, f"*{'; '.join([f'measured {measured}', *filter(None, [machine_line(shared)])])}*\n"])


def in_common(machines: list[dict[str, Any]]) -> dict[str, Any]:
    """The facts that are the same in all."""
    first = machines[0] if machines else {}
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in machines)}


def without(table: Table, said: dict[str, Any]) -> Table:
    machine = table.get("machine") or {}
    return table | {"machine": {key: value for key, value in machine.items() if key not in said}}


def render(table: Table, level: int = 2) -> str:
    """One table as Markdown, with its notes and the machine below it."""
    table = store.with_lists(table)
    columns = table["columns"]
    lines = [f"{'#' * level} {table['title']}", "", "| " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * len(columns))
    lines += ["| " + " | ".join(show(value) for value in row) + " |" for row in table["rows"]]
    lines += [""] + [f"* {note}" for note in table.get("notes", [])]
    if machine := table.get("machine"):
        lines.append(f"* Machine: {machine_line(machine)}.")
    return "\n".join(lines) + "\n"


def machine_line(machine: dict[str, Any]) -> str:
    first = [words.format(show(machine[key])) for key, words in MACHINE.items() if key in machine]
    return ", ".join([*first, *(f"{key} {show(value)}" for key, value in machine.items() if key not in MACHINE)])


# Numbers as text -----------------------------------------------------------------------------------------------------


def show(value: Any) -> str:
    if is_cell(value):
        return show_cell(value)
    if value is None:
        return "–"
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).replace("|", "\\|")


def show_cell(entry: Cell) -> str:
    if entry["unit"] == store.INTERVAL:
        return f"{entry['value']:.2f} [{entry['low']:.2f}, {entry['high']:.2f}]" + _was(entry)
    text = amount(entry["value"], entry["unit"])
    half = (entry["high"] - entry["low"]) / 2
    if half > 0 and entry["value"]:
        share = half / abs(entry["value"])
        text += f" ± {share:.0%}" if share >= 0.005 else " ± <1%"
    text += " ✗" if verdict(entry) is False else ""
    return text + _was(entry)


def _was(entry: Cell) -> str:
    return f" ▼ was {amount(entry['was'], entry['unit'])}" if "was" in entry else ""


def amount(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.3g}%"
    return number(value) + (unit if unit != store.INTERVAL else "")


def number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the page of the last quick run, beside its numbers")
    args = parser.parse_args()
    results, page = (store.QUICK, QUICK_PAGE) if args.quick else (store.RESULTS, PAGE)
    text = build(results, page)
    with atomic_write(page) as file:
        file.write(text)
    print(f"wrote {page.relative_to(PAGE.parents[1])}")


if __name__ == "__main__":
    main()
