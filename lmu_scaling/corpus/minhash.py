"""MinHash signatures of documents (Broder 1997), computed with datasketch, and cut into bands.

A document is the set of its runs of `shingle` words (see shingles.py). The share of permutations on which two documents
have the same minimum estimates the Jaccard similarity of their sets. Two documents are compared when all `rows` values
of at least one of the `bands` agree, which happens with probability 1 - (1 - s^rows)^bands at similarity s; bands and
rows are chosen so that this curve bends just below the threshold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmu_scaling.corpus.shingles import shingle_hashes

SEED = 1
# Hashing takes some forty bytes per character of the texts it is given at once.
CHARACTERS = 1 << 20


def bands_and_rows(threshold: float, permutations: int, missed: float = 0.05) -> tuple[int, int]:
    """The most selective banding that still compares all but `missed` of the pairs at the threshold."""
    best = (permutations, 1)
    for rows in range(1, permutations + 1):
        bands = permutations // rows
        if (1 - threshold**rows) ** bands <= missed:
            best = (bands, rows)
    return best


class MinHasher:
    """Collects the signatures of a part's documents."""

    def __init__(self, settings: Any) -> None:
        from datasketch import MinHash

        self.shingle = settings.shingle
        self.bands, self.rows = bands_and_rows(settings.threshold, settings.permutations)
        self.empty = MinHash(num_perm=self.bands * self.rows, seed=SEED, hashfunc=int, scheme="affine32")
        self.values: list[np.ndarray] = []

    def add(self, texts: list[str]) -> None:
        start = held = 0
        for end, text in enumerate(texts, 1):
            held += len(text)
            if held >= CHARACTERS or end == len(texts):
                self._add(texts[start:end])
                start, held = end, 0

    def _add(self, texts: list[str]) -> None:
        for hashes in shingle_hashes(texts, self.shingle):
            signature = self.empty.copy()
            signature.update_batch(hashes.tolist())
            self.values.append(signature.hashvalues.astype(np.uint32))

    def signatures(self) -> dict[str, np.ndarray]:
        """One array per band, so that duplicates can be found holding one band in memory."""
        width = self.bands * self.rows
        table = np.stack(self.values) if self.values else np.zeros((0, width), np.uint32)
        return {band_name(i): table[:, i * self.rows : (i + 1) * self.rows] for i in range(self.bands)}


def band_name(band: int) -> str:
    return f"minhash_{band:03d}"
