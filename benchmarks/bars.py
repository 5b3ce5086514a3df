"""The bars: what each number was required to reach. A measured cell names its bar; the page judges and sums up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.store import Cell, is_cell


@dataclass(frozen=True)
class Bar:
    """A limit, in words, and how many numbers must be there to judge it."""

    words: str
    limit: float
    sense: str  # "≥", "≤" or "<"
    unit: str = "×"
    numbers: int = 1

    def met(self, value: float) -> bool:
        if self.sense == "≥":
            return value >= self.limit
        return value <= self.limit if self.sense == "≤" else value < self.limit


BARS = {
    "layer_naive": Bar("layer, forward + backward: ours against naive torch, S M L", 4.5, "≥", numbers=3),
    "layer_keras": Bar("layer, forward + backward: ours against keras-lmu + L + attention, S M L", 12, "≥", numbers=3),
    "layer_channel": Bar("layer, forward + backward: ours against the per-channel FFT, S M L", 4, "≥", numbers=3),
    "layer_peak": Bar("layer: peak memory against eager reduced order, at full speed, S M L", 2 / 3, "≤", numbers=3),
    "layer_held": Bar("layer: held activations against eager reduced order, recomputing, S M L", 1 / 6, "≤", numbers=3),
    "generation": Bar("generation by recurrence against running the window again, L", 50, "≥"),
    "step_50257": Bar("LMU step, d = 48, vocabulary 50,257: ours against plain eager", 1.3, "≥"),
    "step_8192": Bar("LMU step, d = 48, vocabulary 8,192: ours against plain eager", 1.5, "≥"),
    "loss_speed": Bar("loss, d = 48, vocabulary 50,257: ours against full logits", 1.25, "≥"),
    "loss_memory": Bar("loss, d = 48, vocabulary 50,257: peak memory against full logits", 1 / 4, "≤"),
    "stage": Bar("the default experiment's training stage: our time against plain eager", 0.75, "≤"),
    "data_wait": Bar("share of a run that waits for data, two sizes", 0.01, "<", "%", 2),
    "checkpoint": Bar("share of a run that goes to checkpoints, two sizes", 0.02, "<", "%", 2),
    "logging": Bar("share of a run that goes to logging, two sizes", 0.01, "<", "%", 2),
    "data_bare": Bar("data: stages against the bare tokenizer; tiktoken, fastokens", 0.85, "≥", numbers=2),
    "data_usual": Bar("data: stages against the usual datasets recipe, engine of the preset `paper`", 3, "≥"),
    "data_flat": Bar(
        "data: growth of peak memory from a twentieth to the whole corpus; tiktoken, fastokens", 0.10, "≤", "%", 2
    ),
    "data_memory": Bar("data: peak memory of a worker; tiktoken, fastokens", 1.0, "<", " GB", 2),
}


@dataclass(frozen=True)
class Verdict:
    """One bar and the numbers found for it."""

    bar: Bar
    values: tuple[float, ...]

    @property
    def word(self) -> str:
        if not all(map(self.bar.met, self.values)):
            return "missed"
        if len(self.values) < self.bar.numbers:
            return "in part" if self.values else "not measured"
        return "met"


def judge(tables: list[dict[str, Any]], bars: dict[str, Bar] = BARS) -> dict[str, Verdict]:
    """A verdict on each bar from all cells that name it; one miss is a miss, too few numbers do not make it met."""
    found: dict[str, list[float]] = {name: [] for name in bars}
    for table in tables:
        for row in table["rows"]:
            for entry in filter(is_cell, row):
                if entry["bar"]:
                    found[entry["bar"]].append(entry["value"])
    return {name: Verdict(bars[name], tuple(values)) for name, values in found.items()}


def verdict(entry: Cell) -> bool | None:
    """Whether a cell meets its bar; None without one."""
    return BARS[entry["bar"]].met(entry["value"]) if entry["bar"] else None
