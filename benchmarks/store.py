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
ALIKE = 0.10  # machines whose sgemm and FFT differ by more are not the same, whatever they call themselves

INTERVAL = "[]"  # the unit of a number that is shown with the ends of its interval

Cell = dict[str, Any]
Table = dict[str, Any]


def cell(
    value: float, low: float | None = None, high: float | None = None, *, better: str, unit: str = "", bar: str = ""
) -> Cell:
    """A measured number with its quartiles; `better` is "higher", "lower" or "–", `bar` a name in bars.py."""
    assert better in ("higher", "lower", "–")
    ends = {"low": value if low is None else low, "high": value if high is None else high}
    return {"value": value, **ends, "better": better, "unit": unit, "bar": bar}


def aside(entry: Cell) -> Cell:
    """A number that is shown for comparison, a rival's or a share: it gets neither better nor worse."""
    return entry | {"better": "–"}


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
        label = tuple(str(entry) for entry in row if entry is not None and not is_cell(entry))
        found |= {
            (*label, column): entry for column, entry in zip(table["columns"], row, strict=True) if is_cell(entry)
        }
    return found


def mark(table: Table, before: list[Table]) -> None:
    """Give cells that got worse the value they had.

    Ratios are compared if they were measured in the same way; other numbers only on the same kind of machine, which
    nobody else used.
    """
    for old in before:
        if old["title"] == table["title"] and _measured_alike(old, table):
            known, same = cells(old), _is_quiet(old) and _is_quiet(table) and _same_machine(old, table)
            for key, entry in cells(table).items():
                if key in known and (same or entry["unit"] == "×") and got_worse(entry, known[key]):
                    entry["was"] = known[key]["value"]


def got_worse(new: Cell, old: Cell) -> bool:
    if new["better"] == "–":
        return False
    measured = max(new["high"] - new["low"], old["high"] - old["low"])
    least = LEAST_SPREAD if measured else SINGLE_SPREAD
    spread = max(measured, least * abs(old["value"]))
    loss = old["value"] - new["value"] if new["better"] == "higher" else new["value"] - old["value"]
    return loss > spread


def _measured_alike(old: Table, new: Table) -> bool:
    return all(_fact(old, key) == _fact(new, key) for key in ("threads", "clock"))


def _same_machine(old: Table, new: Table) -> bool:
    if any(_fact(old, key) != _fact(new, key) for key in ("processor", "cores")):
        return False
    peaks = [(_fact(old, key), _fact(new, key)) for key in ("sgemm_gflops", "fft_gflops")]
    return all(abs(a - b) <= ALIKE * max(a, b) for a, b in peaks if a and b)


def _fact(table: Table, key: str) -> Any:
    return (table.get("machine") or {}).get(key)


def _is_quiet(table: Table) -> bool:
    return (_fact(table, "load") or 0) < QUIET
