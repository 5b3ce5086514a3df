"""Train, validation and test split by a stable hash of the document's text (the paper's section 5: 96/3/1 %).

A text gets the same split whatever the order of files, the number of workers, parts or shards, and whatever else the
corpus contains. The first word of the 128-bit hash decides the split, the second the subsample, so that the two are
independent.
"""

from __future__ import annotations

import numpy as np

from lmu_scaling.sections import Split

SPLITS = ("train", "validation", "test")


def split_of(hashes: np.ndarray, shares: Split) -> np.ndarray:
    """0, 1 or 2 for train, validation, test."""
    position = hashes[:, 0] / 2.0**64
    return np.digitize(position, [shares.train, shares.train + shares.validation]).astype(np.uint8)


def totals(chosen: np.ndarray, tokens: np.ndarray, sizes: np.ndarray) -> dict[str, int]:
    """Documents, tokens and bytes of the documents in the mask `chosen`."""
    columns = {"documents": chosen, "tokens": tokens[chosen], "bytes": sizes[chosen]}
    return {name: int(column.sum(dtype=np.int64)) for name, column in columns.items()}


def subsample(hashes: np.ndarray, tokens: np.ndarray, kept: np.ndarray, target: int) -> np.ndarray:
    """Mask of documents to drop so that at most `target` tokens remain: those with the largest hashes."""
    dropped = np.zeros(len(kept), bool)
    chosen = np.flatnonzero(kept)
    order = chosen[np.lexsort((hashes[chosen, 0], hashes[chosen, 1]))]
    total = np.cumsum(tokens[order], dtype=np.int64)
    dropped[order[np.searchsorted(total, target, side="right") :]] = True
    return dropped
