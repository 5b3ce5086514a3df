"""Bookkeeping of a part: how many documents and bytes came in, were unreadable, were dropped, were kept.

Unreadable input stops the run at once or is counted, as `corpus.on_bad_document` says; `check_bad_share` stops the run
when more than `corpus.max_bad_share` of the documents, or of the source's bytes, could not be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lmu_scaling.corpus.documents import BAD_REASONS, Bad
from lmu_scaling.errors import CorpusError

EXAMPLES = 20


@dataclass
class Accounts:
    """Counts of one part (documents and bytes of UTF-8 text)."""

    stop_on_bad: bool = False
    documents: int = 0
    bytes: int = 0
    kept_documents: int = 0
    kept_bytes: int = 0
    dropped: dict[str, list[int]] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)
    bad_bytes: int = 0
    examples: list[str] = field(default_factory=list)

    def note_bad(self, items: Iterable[Bad]) -> None:
        for item in items:
            if self.stop_on_bad:
                raise CorpusError(
                    BAD_REASONS[item.reason],
                    item.where,
                    "mend the source, or set corpus.on_bad_document: skip to count and skip such documents",
                )
            self.bad[item.reason] += 1
            self.bad_bytes += item.bytes
            if len(self.examples) < EXAMPLES:
                self.examples.append(f"{BAD_REASONS[item.reason]}: {item.where}")

    def note_dropped(self, name: str, documents: int, size: int) -> None:
        row = self.dropped.setdefault(name, [0, 0])
        row[0] += documents
        row[1] += size

    def as_dict(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "bytes": self.bytes,
            "kept_documents": self.kept_documents,
            "kept_bytes": self.kept_bytes,
            "dropped": self.dropped,
            "bad": dict(sorted(self.bad.items())),
            "bad_bytes": self.bad_bytes,
            "bad_examples": self.examples,
        }


def check_bad_share(parts: list[dict[str, Any]], source: dict[str, Any], max_bad_share: float) -> dict[str, Any]:
    """Add up what could not be read; too much of it is an error that shows examples."""
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
            "mend the source, or raise corpus.max_bad_share",
        )
    return {"unreadable": dict(sorted(bad.items())), "unreadable_share": by_count}
