"""Filter `near_duplicates`: documents whose MinHash signatures agree (see `corpus/minhash.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lmu_scaling.corpus.filters import CorpusFilter, Signatures
from lmu_scaling.fields import Positive, Share

if TYPE_CHECKING:
    import numpy as np


class NearDuplicatesFilter(CorpusFilter):
    """Drop documents that are almost the same as an earlier one (MinHash)."""

    name: Literal["near_duplicates"]
    threshold: Share = Field(0.8, description="Jaccard similarity of word shingles above which a document is dropped")
    permutations: Positive = Field(128, description="MinHash permutations")
    shingle: Positive = Field(5, description="Words per shingle")

    def sign(self, texts: list[str]) -> dict[str, np.ndarray]:
        from lmu_scaling.corpus.minhash import minhash_signatures

        return minhash_signatures(texts, self.threshold, self.permutations, self.shingle)

    def signature_bytes(self, text_bytes: int) -> int:
        return 4 * self.permutations

    def drops(self, signatures: Signatures, candidates: np.ndarray) -> np.ndarray:
        from lmu_scaling.corpus.minhash import near_duplicates

        return near_duplicates(signatures, candidates, self.threshold, self.permutations)
