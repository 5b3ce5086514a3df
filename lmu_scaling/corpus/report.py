"""The table of what each filter did, in order: the replication's answer to "after additional filtering" (section 4)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.runtime import atomic_write

COLUMNS = ("step", "filter", "dropped_documents", "dropped_bytes", "kept_documents", "kept_bytes", "kept_share")


def report_rows(
    counts: list[dict[str, Any]], names: list[str], late: list[str], masks: dict[str, np.ndarray], sizes: np.ndarray
) -> list[dict[str, Any]]:
    """One row for what was read, one per filter; `late` names the filters whose dropped documents `masks` shows."""
    documents = sum(part["documents"] for part in counts)
    size = sum(part["bytes"] for part in counts)
    bad = sum(sum(part["bad"].values()) for part in counts)
    bad_bytes = sum(part["bad_bytes"] for part in counts)
    steps = [("unreadable", bad, bad_bytes)]
    for name in names:
        dropped = [part["dropped"].get(name, [0, 0]) for part in counts]
        steps.append((name, sum(d for d, _ in dropped), sum(b for _, b in dropped)))
    for name in late:
        steps.append((name, int(masks[name].sum()), int(sizes[masks[name]].sum(dtype=np.int64))))
    left, left_bytes = documents + bad, size + bad_bytes
    rows = []
    for step, (name, lost, lost_bytes) in enumerate(steps):
        left, left_bytes = left - lost, left_bytes - lost_bytes
        share = round(left / max(documents + bad, 1), 6)
        rows.append(dict(zip(COLUMNS, (step, name, lost, lost_bytes, left, left_bytes, share), strict=True)))
    return rows


def write_report(path: Path, rows: list[dict[str, Any]]) -> None:
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
