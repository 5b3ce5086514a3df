"""Filter `exact_duplicates`: documents with the same 128-bit hash of their text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lmu_scaling.corpus.filters import CorpusFilter, Signatures

if TYPE_CHECKING:
    import numpy as np


class ExactDuplicatesFilter(CorpusFilter):
    """Drop documents whose text was seen before."""

    name: Literal["exact_duplicates"]

    def drops(self, signatures: Signatures, candidates: np.ndarray) -> np.ndarray:
        # Whether the first of several copies is itself a candidate does not matter: what drops it drops the others too.
        return repeated(signatures.all("hash")) & candidates


def repeated(hashes: np.ndarray) -> np.ndarray:
    """Mask of the rows (n × 2 words) that occurred before."""
    import numpy as np

    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal hashes keep the source's order
    ordered = hashes[order]
    repeats = np.zeros(len(hashes), bool)
    repeats[order[1:]] = np.all(ordered[1:] == ordered[:-1], axis=1)
    return repeats
