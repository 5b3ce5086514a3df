"""How much of each validation and test document is in the training documents: shared runs of words.

A document is the set of its runs of `words` words (see shingles.py), as 64-bit hashes. Its share is the part of this
set that occurs in any training document, so a document put together from many is found like a copy of one. Of a large
corpus one in `sample` runs is compared: the same ones everywhere, because their hash chooses them. The share is then an
estimate with standard error sqrt(s (1 - s) / compared runs).

Memory holds the runs of validation and test documents (8 bytes each, three times over) and those of one part of the
corpus (twice); training runs are only looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmu_scaling.corpus.filters import Signatures
from lmu_scaling.corpus.shingles import in_pieces, long_shingle_hashes

RUNS, LENGTHS = "runs", "runs_of_document"
TRAIN, HELD_OUT = 0, {"validation": 1, "test": 2}
MIX = np.uint64(0xFF51AFD7ED558CCD)


def run_signatures(texts: list[str], words: int, sample: int) -> dict[str, np.ndarray]:
    """The different runs of all texts end to end, and how many each text has; with `sample`, one in so many."""
    found = [np.zeros(0, np.uint64)]
    for some in in_pieces(texts):
        found += [_chosen(np.unique(runs), sample) for runs in long_shingle_hashes(some, words)]
    return {RUNS: np.concatenate(found), LENGTHS: np.array([len(runs) for runs in found[1:]], np.uint32)}


def _chosen(runs: np.ndarray, sample: int) -> np.ndarray:
    if sample == 1:
        return runs
    mixed = (runs ^ (runs >> np.uint64(32))) * MIX
    return runs[(mixed >> np.uint64(32)) % np.uint64(sample) == 0]


@dataclass(frozen=True)
class Overlap:
    """Per document its split, the runs that were compared and those that training holds; 0 if it is not held out."""

    split: np.ndarray
    runs: np.ndarray
    shared: np.ndarray

    def above(self, share: float) -> np.ndarray:
        """Mask of the documents whose share is larger."""
        return self.shared > share * self.runs

    def by_split(self, share: float) -> list[dict[str, Any]]:
        """Rows of overlap.csv; a document of which no run was compared does not count."""
        rows = []
        for name, split in HELD_OUT.items():
            mine = (self.split == split) & (self.runs > 0)
            runs, shared = self.runs[mine], self.shared[mine]
            rows.append(
                {
                    "split": name,
                    "documents": int(mine.sum()),
                    "compared_runs": int(runs.sum()),
                    "shared_runs": int(shared.sum()),
                    "share": round(float(shared.sum() / max(runs.sum(), 1)), 6),
                    "largest_share": round(float(np.max(shared / runs, initial=0.0)), 6),
                    "bound": share,
                    "documents_above": int(self.above(share)[mine].sum()),
                }
            )
        return rows


def overlap(signatures: Signatures, documents: np.ndarray) -> Overlap:
    """Compare the held-out documents with the training documents, both among those in the mask `documents`."""
    split = np.where(documents, signatures.all("split"), len(HELD_OUT) + 1)
    held_out = np.isin(split, list(HELD_OUT.values()))
    # Sorted in place: np.unique takes twenty times as long.
    known = np.concatenate([runs for _, runs in _runs_by_part(signatures, held_out)])
    known.sort()
    in_training = np.zeros(len(known), bool)
    for _, runs in _runs_by_part(signatures, split == TRAIN):
        runs.sort()
        in_training |= _contains(runs, known)
    compared, shared = [], []
    for lengths, runs in _runs_by_part(signatures, held_out):
        before = np.r_[0, np.cumsum(in_training[np.searchsorted(known, runs)])]
        ends = np.cumsum(lengths)
        compared.append(lengths)
        shared.append(before[ends] - before[ends - lengths])
    return Overlap(split, np.concatenate(compared), np.concatenate(shared))


def _runs_by_part(signatures: Signatures, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each part of the corpus: how many runs each document has (0 if it is not chosen), and these runs."""
    start = 0
    for lengths, runs in zip(signatures.by_part(LENGTHS), signatures.by_part(RUNS), strict=True):
        mine = chosen[start : start + len(lengths)]
        start += len(lengths)
        yield np.where(mine, lengths, 0).astype(np.int64), runs[np.repeat(mine, lengths)]


def _contains(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mask of the values that occur in `ordered`."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    place = np.searchsorted(ordered, values)
    return ordered[np.minimum(place, len(ordered) - 1)] == values
