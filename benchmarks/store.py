"""What was measured: numbers with their spread, and the one file that keeps them, benchmarks/results.json.

Every benchmark merges its own section, so that each can be run alone. A number that got worse by more than its spread
since the section was last stored carries the old value (`was`), which the page shows. Quick runs are kept apart, under
benchmarks/.cache/, and are compared with the quick run before them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import QUIET
from lmu_scaling.runtime import read_json, write_json

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
QUICK = HERE / ".cache" / "quick.json"
LEAST_SPREAD = 0.03  # a change below 3 % is no news, however steady the rounds were
SINGLE_SPREAD = 0.10  # of a number that was measured once
COMPARABLE = ("processor", "cores", "threads", "clock")

Cell = dict[str, Any]
Table = dict[str, Any]


def cell(
    value: float, low: float | None = None, high: float | None = None, *, better: str, unit: str = "", bar: str = ""
) -> Cell:
    """A measured number with its quartiles; `better` is "higher" or "lower", `bar` a name in bars.py."""
    assert better in ("higher", "lower")
    ends = {"low": value if low is None else low, "high": value if high is None else high}
    return {"value": value, **ends, "better": better, "unit": unit, "bar": bar}


def is_cell(entry: Any) -> bool:
    return isinstance(entry, dict) and "value" in entry


def load(path: Path = RESULTS) -> dict[str, Any]:
    """Sections by name."""
    return read_json(path)["sections"] if path.exists() else {}


def merge(name: str, tables: list[Table], left: str = "", path: Path = RESULTS) -> list[Table]:
    """Replace one section, leave all others; returns its tables with what got worse marked."""
    sections = load(path)
    tables = [with_lists(table) for table in tables]
    for table in tables:
        mark(table, sections.get(name, {}).get("tables", []))
    sections[name] = {"tables": tables, "left": left, "measured": datetime.now(UTC).date().isoformat()}
    write_json(path, {"format": 1, "sections": sections})
    return tables


def with_lists(table: Table) -> Table:
    """Rows as lists in the order of the columns; a benchmark may give dictionaries."""
    columns = table["columns"]
    rows = [[row.get(name) for name in columns] if isinstance(row, dict) else list(row) for row in table["rows"]]
    return table | {"rows": rows}


# Better or worse -----------------------------------------------------------------------------------------------------


def cells(table: Table) -> dict[tuple[str, ...], Cell]:
    """Measured cells by the words of their row and the name of their column."""
    found = {}
    for row in table["rows"]:
        label = tuple(str(entry) for entry in row if not is_cell(entry))
        found |= {
            (*label, column): entry for column, entry in zip(table["columns"], row, strict=True) if is_cell(entry)
        }
    return found


def mark(table: Table, before: list[Table]) -> None:
    """Give cells that got worse the value they had.

    Only numbers of one kind of machine are compared, and only ratios if other work shared it.
    """
    for old in before:
        if old["title"] == table["title"] and _same_conditions(old, table):
            known, quiet = cells(old), _is_quiet(old) and _is_quiet(table)
            for key, entry in cells(table).items():
                if key in known and (quiet or entry["unit"] == "×") and got_worse(entry, known[key]):
                    entry["was"] = known[key]["value"]


def got_worse(new: Cell, old: Cell) -> bool:
    measured = max(new["high"] - new["low"], old["high"] - old["low"])
    least = LEAST_SPREAD if measured else SINGLE_SPREAD
    spread = max(measured, least * abs(old["value"]))
    loss = old["value"] - new["value"] if new["better"] == "higher" else new["value"] - old["value"]
    return loss > spread


def _same_conditions(old: Table, new: Table) -> bool:
    return all((old.get("machine") or {}).get(key) == (new.get("machine") or {}).get(key) for key in COMPARABLE)


def _is_quiet(table: Table) -> bool:
    return (table.get("machine") or {}).get("load", 0) < QUIET
