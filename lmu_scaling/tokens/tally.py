"""Counts of documents and bytes: read, unreadable, dropped by each filter, kept; per part and in the filter report.

Unreadable input stops the run at once or is counted, depending on `corpus.on_bad_document`; `check_bad_share` stops the
run when more than `corpus.max_bad_share` of the documents, or of the source's bytes, could not be read.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmu_scaling.corpus.documents import BAD_REASONS, Bad
from lmu_scaling.errors import CorpusError
from lmu_scaling.runtime import atomic_write

EXAMPLES = 20
COLUMNS = ("step", "filter", "dropped_documents", "dropped_bytes", "kept_documents", "kept_bytes", "kept_share")
OVERLAP_COLUMNS = (
    *("when", "split", "documents", "compared_runs", "shared_runs"),
    *("share", "largest_share", "bound", "documents_above"),
)


@dataclass
class Tally:
    """Counts of one part (documents and bytes of UTF-8 text)."""

    stop_on_bad: bool = False
    documents: int = 0
    bytes: int = 0
    kept_documents: int = 0
    kept_bytes: int = 0
    dropped: dict[str, list[int]] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)
    bad_bytes: int = 0
    bad_examples: list[str] = field(default_factory=list)

    def add_bad(self, items: Iterable[Bad]) -> None:
        for item in items:
            if self.stop_on_bad:
                raise CorpusError(
                    BAD_REASONS[item.reason],
                    item.where,
                    "repair the source, or set corpus.on_bad_document: skip to count and skip such documents",
                )
            self.bad[item.reason] += 1
            self.bad_bytes += item.bytes
            if len(self.bad_examples) < EXAMPLES:
                self.bad_examples.append(f"{BAD_REASONS[item.reason]}: {item.where}")

    def add_dropped(self, name: str, documents: int, size: int) -> None:
        """Documents and bytes that a filter dropped; bytes include those it cut out of documents it kept."""
        row = self.dropped.setdefault(name, [0, 0])
        row[0] += documents
        row[1] += size
        self.bytes += size

    def add_kept(self, documents: int, size: int) -> None:
        self.kept_documents += documents
        self.kept_bytes += size
        self.bytes += size

    def counts(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "stop_on_bad"}


def check_bad_share(parts: list[dict[str, Any]], source: dict[str, Any], max_bad_share: float) -> dict[str, Any]:
    """Add up what could not be read; raise an error with examples if it is too much."""
    bad: Counter[str] = Counter()
    for part in parts:
        bad.update(part["bad"])
    documents = sum(part["documents"] for part in parts)
    size = sum(member["size"] for member in source["members"])
    by_count = bad.total() / max(documents + bad.total(), 1)
    by_bytes = sum(part["bad_bytes"] for part in parts) / max(size, 1)
    if max(by_count, by_bytes) > max_bad_share:
        examples = [example for part in parts for example in part["bad_examples"]][:3]
        raise CorpusError(
            f"{bad.total()} documents or files are unreadable ({100 * by_count:.2g} % of all, {100 * by_bytes:.2g} % of"
            f" the bytes), more than the {100 * max_bad_share:g} % allowed",
            "; ".join(examples),
            "repair the source, or raise corpus.max_bad_share",
        )
    return {"unreadable": dict(sorted(bad.items())), "unreadable_share": by_count}


def report_rows(parts: list[dict[str, Any]], dropped: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """The filter report: one row for what was read, one per entry of `dropped` (name → documents and bytes)."""
    bad = sum(sum(part["bad"].values()) for part in parts)
    bad_bytes = sum(part["bad_bytes"] for part in parts)
    documents = left = sum(part["documents"] for part in parts) + bad
    left_bytes = sum(part["bytes"] for part in parts) + bad_bytes
    rows = []
    for step, (name, (lost, lost_bytes)) in enumerate({"unreadable": (bad, bad_bytes), **dropped}.items()):
        left, left_bytes = left - lost, left_bytes - lost_bytes
        share = round(left / max(documents, 1), 6)
        rows.append(dict(zip(COLUMNS, (step, name, lost, lost_bytes, left, left_bytes, share), strict=True)))
    return rows


def write_report(path: Path, rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
