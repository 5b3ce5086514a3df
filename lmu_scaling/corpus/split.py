"""Train, validation and test by a stable hash of the document's text (the paper's section 4: 96/3/1 %).

The same text lands in the same split whatever the order of files, the number of workers, parts or shards, and whatever
else the corpus contains. The first word of the 128-bit hash decides the split, the second the subsample, so that the
two are independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SPLITS = ("train", "validation", "test")


def split_of(hashes: np.ndarray, shares: Any) -> np.ndarray:
    """0, 1 or 2 for train, validation, test; `shares` has these three attributes and they sum to 1."""
    position = hashes[:, 0] / 2.0**64
    return np.digitize(position, [shares.train, shares.train + shares.validation]).astype(np.uint8)


def subsample(hashes: np.ndarray, tokens: np.ndarray, kept: np.ndarray, target: int | None) -> np.ndarray:
    """Mask of documents to drop so that at most `target` tokens remain: those with the largest hashes."""
    dropped = np.zeros(len(kept), bool)
    if target is None:
        return dropped
    chosen = np.flatnonzero(kept)
    order = chosen[np.lexsort((hashes[chosen, 0], hashes[chosen, 1]))]
    total = np.cumsum(tokens[order], dtype=np.int64)
    dropped[order[np.searchsorted(total, target, side="right") :]] = True
    return dropped
