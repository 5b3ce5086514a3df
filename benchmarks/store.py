"""Measured numbers, the targets they must reach, and the file that keeps them: benchmarks/results.json.

Every section merges its own tables into the file, one line per row. A number that got worse by more than its spread
since it was last stored carries the old value (`was`), which the page shows. Quick runs are kept apart, under
benchmarks/.cache/, and are compared with the previous quick run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmu_scaling.runtime import atomic_write, read_json

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
RESULTS = HERE / "results.json"
QUICK = CACHE / "quick.json"
QUIET = 1.5  # load average of the last minute
MIN_SPREAD = 0.03  # a change below 3 % is never reported, however steady the rounds were
SINGLE_SPREAD = 0.10  # of a number that was measured once
SAME_MACHINE = 0.10  # machines whose sgemm or FFT speed differs by more are not compared
INTERVAL = "[]"  # unit of a number that is shown with the ends of its interval

Cell = dict[str, Any]
Table = dict[str, Any]


def cell(
    value: float, low: float | None = None, high: float | None = None, *, better: str = "–", unit: str = "",
    target: str = "", **was: float,
) -> Cell:  # fmt: skip
    """A measured number with its quartiles; `better` is "higher", "lower" or "–", `target` a name in TARGETS."""
    assert better in ("higher", "lower", "–")
    ends = {"low": value if low is None else low, "high": value if high is None else high}
    return {"value": value, **ends, "better": better, "unit": unit, "target": target, **was}


def reference(entry: Cell) -> Cell:
    """A number that is shown for comparison, such as a rival's: it is never reported as worse."""
    return entry | {"better": "–"}


def is_cell(entry: Any) -> bool:
    return isinstance(entry, dict) and "value" in entry


# Targets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A limit, what it limits, and how many numbers are needed to judge it."""

    words: str
    limit: float
    sense: str  # "≥", "≤" or "<"
    unit: str = "×"
    numbers: int = 1

    def met(self, value: float) -> bool:
        if self.sense == "≥":
            return value >= self.limit
        return value <= self.limit if self.sense == "≤" else value < self.limit


TARGETS = {
    "layer_naive": Target("layer, forward + backward: ours against naive torch, S M L", 4.5, "≥", numbers=3),
    "layer_keras": Target(
        "layer, forward + backward, in the faster precision (float32): ours against keras-lmu + L + attention, S M L",
        25,
        "≥",
        "×",
        3,
    ),
    "layer_channel": Target("layer, forward + backward: ours against the per-channel FFT, S M L", 4, "≥", numbers=3),
    "layer_peak": Target("layer: peak memory against eager reduced order, at full speed, S M L", 2 / 3, "≤", "×", 3),
    "layer_held": Target("layer: held activations against eager reduced order, recomputing, S M L", 1 / 6, "≤", "×", 3),
    "generation": Target("generation by recurrence against running the window again, L", 50, "≥"),
    "step_50257": Target("LMU step, d = 48, vocabulary 50,257: ours against plain eager", 1.3, "≥"),
    "step_8192": Target("LMU step, d = 48, vocabulary 8,192: ours against plain eager", 1.5, "≥"),
    "loss_speed": Target("loss, d = 48, vocabulary 50,257: ours against full logits", 1.25, "≥"),
    "loss_memory": Target("loss, d = 48, vocabulary 50,257: peak memory against full logits", 1 / 4, "≤"),
    "loss_float32": Target(
        "loss, vocabulary 50,257, float32: against the first kernels, d = 96, 204", 1.3, "≥", "×", 2
    ),
    "loss_bfloat16": Target(
        "loss, vocabulary 50,257: bfloat16 against our first kernels in float32, S M L", 3, "≥", "×", 3
    ),
    "bf16_50257": Target(
        "step, vocabulary 50,257: bfloat16 against our first kernels in float32, each variant and size",
        2.2,
        "≥",
        "×",
        15,
    ),
    "bf16_4096": Target(
        "step, vocabulary 4,096: bfloat16 against our first kernels in float32, each variant and size",
        1.5,
        "≥",
        "×",
        15,
    ),
    "rivals_gpt2": Target(
        "step in bfloat16 against Hugging Face's GPT-2 in its best setting, S M L, vocabularies 4,096 and 50,257",
        1.5,
        "≥",
        "×",
        6,
    ),
    "rivals_eager": Target(
        "step in bfloat16 against plain eager torch under autocast, LMU variants, S M L, both vocabularies",
        2,
        "≥",
        "×",
        12,
    ),
    "paired": Target("bfloat16: mean change of the validation loss in paired runs, its size", 0.01, "≤", " nats"),
    "stage": Target("the default experiment's training stage: our time against plain eager", 0.75, "≤"),
    "stage_first": Target("the default experiment's training stage: our time against our first kernels", 0.8, "≤"),
    "data_wait": Target("share of a run spent waiting for data, two sizes", 0.01, "<", "%", 2),
    "checkpoint": Target("share of a run spent on checkpoints, two sizes", 0.02, "<", "%", 2),
    "logging": Target("share of a run spent on logging, two sizes", 0.01, "<", "%", 2),
    "data_bare": Target("data: stages against the tokenizer alone; tiktoken, fastokens", 0.85, "≥", numbers=2),
    "data_usual": Target("data: stages against the usual datasets recipe, engine of the preset `paper`", 3, "≥"),
    "data_flat": Target(
        "data: growth of peak memory per GB of text, from a quarter to the whole corpus; tiktoken, fastokens",
        50,
        "≤",
        " MB/GB",
        2,
    ),
    "data_memory": Target("data: peak memory of a worker; tiktoken, fastokens", 1.0, "<", " GB", 2),
}


@dataclass(frozen=True)
class Verdict:
    """A target and the numbers that were measured for it."""

    target: Target
    values: tuple[float, ...]

    @property
    def word(self) -> str:
        if not all(map(self.target.met, self.values)):
            return "missed"
        if len(self.values) < self.target.numbers:
            return "partly measured" if self.values else "not measured"
        return "met"


def judge(tables: list[Table], targets: dict[str, Target] = TARGETS) -> dict[str, Verdict]:
    """A verdict on each target from all cells that name it; one miss is a miss."""
    found: dict[str, list[float]] = {name: [] for name in targets}
    for entry in (entry for table in tables for row in table["rows"] for entry in row if is_cell(entry)):
        if entry["target"]:
            found[entry["target"]].append(entry["value"])
    return {name: Verdict(targets[name], tuple(values)) for name, values in found.items()}


# The file ------------------------------------------------------------------------------------------------------------


def load(path: Path = RESULTS) -> dict[str, Any]:
    """Sections by name."""
    sections = read_json(path)["sections"] if path.exists() else {}
    for table in (table for section in sections.values() for table in section["tables"]):
        table["rows"] = [[cell(**entry) if is_cell(entry) else entry for entry in row] for row in table["rows"]]
    return sections


def merge(name: str, tables: list[Table], remaining: str = "", path: Path = RESULTS) -> list[Table]:
    """Replace one section and keep all others; returns its tables, with numbers that got worse marked."""
    sections = load(path)
    for table in tables:
        mark(table, sections.get(name, {}).get("tables", []))
    today = datetime.now(UTC).date().isoformat()
    sections[name] = {"measured": today, "remaining": remaining, "tables": tables}
    save(sections, path)
    return tables


def save(sections: dict[str, Any], path: Path) -> None:
    """Write JSON with one line per row of a table, so that a diff shows which measurement changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, section in sorted(sections.items()):
        tables = ",\n".join(_table_text(table) for table in section["tables"])
        head = {key: value for key, value in section.items() if key != "tables"}
        parts.append(f'{_text(name)}: {_text(head)[:-1]}, "tables": [\n{tables}]}}')
    with atomic_write(path) as file:
        file.write('{"format": 2, "sections": {\n' + ",\n".join(parts) + "}}\n")


def _table_text(table: Table) -> str:
    head = {key: value for key, value in table.items() if key not in ("rows", "machine")}
    rows = ",\n".join("  " + _text([_compact(entry) for entry in row]) for row in table["rows"])
    return f'{_text(head)[:-1]},\n "machine": {_text(table["machine"])}, "rows": [\n{rows}]}}'


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _compact(entry: Any) -> Any:
    """A cell without what `cell` fills in."""
    if not is_cell(entry):
        return entry
    defaults = {"low": entry["value"], "high": entry["value"], "better": "–", "unit": "", "target": ""}
    return {key: value for key, value in entry.items() if value != defaults.get(key)}


# Better or worse -----------------------------------------------------------------------------------------------------


def cells(table: Table) -> dict[tuple[str, ...], Cell]:
    """Measured cells by the words of their row and the name of their column."""
    found = {}
    for row in table["rows"]:
        label = tuple(str(entry) for entry in row if entry is not None and not is_cell(entry))
        found |= {(*label, name): entry for name, entry in zip(table["columns"], row, strict=True) if is_cell(entry)}
    return found


def mark(table: Table, before: list[Table]) -> None:
    """Give cells that got worse the value they had.

    Ratios are compared if threads and clock are the same; other numbers only on the same machine, if it was quiet.
    """
    for old in before:
        if old["title"] == table["title"] and _same(old, table, "threads", "clock"):
            known, comparable = cells(old), _is_quiet(old) and _is_quiet(table) and _same_machine(old, table)
            for key, entry in cells(table).items():
                if key in known and (comparable or entry["unit"] == "×") and got_worse(entry, known[key]):
                    entry["was"] = known[key]["value"]


def got_worse(new: Cell, old: Cell) -> bool:
    if new["better"] == "–":
        return False
    measured = max(new["high"] - new["low"], old["high"] - old["low"])
    spread = max(measured, (MIN_SPREAD if measured else SINGLE_SPREAD) * abs(old["value"]))
    loss = old["value"] - new["value"] if new["better"] == "higher" else new["value"] - old["value"]
    return loss > spread


def _same(old: Table, new: Table, *keys: str) -> bool:
    return all(old["machine"].get(key) == new["machine"].get(key) for key in keys)


def _same_machine(old: Table, new: Table) -> bool:
    peaks = [(old["machine"].get(key), new["machine"].get(key)) for key in ("sgemm_gflops", "fft_gflops")]
    alike = all(abs(a - b) <= SAME_MACHINE * max(a, b) for a, b in peaks if a and b)
    return alike and _same(old, new, "processor", "cores")


def _is_quiet(table: Table) -> bool:
    return table["machine"].get("load", 0) < QUIET
