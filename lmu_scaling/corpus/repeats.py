"""Pieces of documents that occur again in the corpus, for filters that keep pieces (`filters.PieceFilter`).

A piece is kept where it occurs first in the source's order. Parts of a corpus are encoded independently, so a job
before them (`survey`) notes the 64-bit hashes of each part's pieces; from all of them follows which pieces are
repeated and which of these occurred in earlier parts. Only those are held in memory while a part is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import xxhash

from lmu_scaling.corpus.filters import PieceFilter

Apply = Callable[[str, str | None, int], str | None]


class Survey:
    """Hashes of the pieces of one part, and which of them occur twice or more in it."""

    def __init__(self) -> None:
        self.hashes = np.zeros(0, np.uint64)
        self.counts = np.zeros(0, np.uint8)

    def add(self, hashes: Sequence[int]) -> None:
        """Note pieces by their hashes."""
        found, counts = np.unique(np.array(hashes, np.uint64), return_counts=True)
        self.merge(found, counts)

    def merge(self, hashes: np.ndarray, counts: np.ndarray) -> None:
        """Add what another survey found."""
        both = np.concatenate([self.hashes, hashes])
        weights = np.concatenate([self.counts, np.minimum(counts, 2)])
        self.hashes, places = np.unique(both, return_inverse=True)
        self.counts = np.minimum(np.bincount(places, weights, len(self.hashes)), 2).astype(np.uint8)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"hashes": self.hashes, "counts": self.counts}


def piece_hash(piece: str) -> int:
    return xxhash.xxh3_64_intdigest(piece.encode())


@dataclass
class Repeats:
    """Which pieces of one part to keep; counts what it has seen."""

    repeated: set[int]
    seen: set[int]
    counts: dict[str, int] = field(default_factory=lambda: {"kept": 0, "repeated": 0, "repeated_bytes": 0})

    def applying(self, item: PieceFilter) -> Apply:
        """`item.apply` for documents in order, without pieces that occurred before."""

        def apply(text: str, language: str | None, tokens: int) -> str | None:
            return "\n\n".join(piece for piece in item.pieces(text) if self.is_first(piece)) or None

        return apply

    def is_first(self, piece: str) -> bool:
        key = piece_hash(piece)
        if key in self.seen:
            self.counts["repeated"] += 1
            self.counts["repeated_bytes"] += len(piece.encode())
            return False
        if key in self.repeated:
            self.seen.add(key)
        self.counts["kept"] += 1
        return True


def repeats_of(surveys: Sequence[dict[str, np.ndarray]], part: int) -> Repeats:
    """What is repeated in the whole corpus, and what of it occurred before this part; `surveys` in order of parts."""
    total = Survey()
    for survey in surveys:
        total.merge(survey["hashes"], survey["counts"])
    repeated = total.hashes[total.counts > 1]
    before = np.concatenate([repeated[:0], *(survey["hashes"] for survey in surveys[:part])])
    return Repeats(set(repeated.tolist()), set(np.intersect1d(repeated, before).tolist()))
