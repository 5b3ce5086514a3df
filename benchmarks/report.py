"""Renders docs/performance.md from benchmarks/results/*.json: `python -m benchmarks.report`.

Each file holds one table, or a list of tables: {"title", "columns", "rows", "notes", "machine"}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmu_scaling.runtime import atomic_write

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
HEAD = """# Performance

Made by `python -m benchmarks.report` from `benchmarks/results/*.json`; each table says how to measure it again.
Rivals are timed in turns within one run: trust the ratios more than the absolute numbers.
"""


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def render(table: dict[str, Any]) -> str:
    """One table as Markdown, with its notes and the machine below it."""
    columns = table["columns"]
    lines = [f"## {table['title']}", "", "| " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * len(columns))
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in table["rows"]]
    lines += [""] + [f"* {note}" for note in table.get("notes", [])]
    if machine := table.get("machine"):
        facts = ", ".join(f"{key.replace('_', ' ')} {cell(value)}" for key, value in machine.items())
        lines.append(f"* Machine: {facts}.")
    return "\n".join(lines) + "\n"


def tables(folder: Path = RESULTS) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text("utf-8"))
        entries = content if isinstance(content, list) else [content]
        found += [entry for entry in entries if "columns" in entry]  # other files keep raw numbers
    return found


def main() -> None:
    with atomic_write(PAGE) as file:
        file.write("\n".join([HEAD, *map(render, tables())]))
    print(f"wrote {PAGE.name} with {len(tables())} tables")


if __name__ == "__main__":
    main()
