"""Filter `containment`: validation and test documents that repeat training text (see `corpus/overlap.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lmu_scaling.corpus.filters import CorpusFilter, Signatures
from lmu_scaling.fields import Positive, Share

if TYPE_CHECKING:
    import numpy as np


class ContainmentFilter(CorpusFilter):
    """Drop validation and test documents that share too many runs of words with the training documents."""

    name: Literal["containment"]
    max_share: Share = Field(0.05, description="Largest share of a document's different runs that training may hold")
    words: Positive = Field(8, description="Words per run")
    sample: Positive = Field(1, description="One in so many runs is compared, chosen by its hash; 1: all, exact")

    def sign(self, texts: list[str]) -> dict[str, np.ndarray]:
        from lmu_scaling.corpus.overlap import run_signatures

        return run_signatures(texts, self.words, self.sample)

    def signature_bytes(self, text_bytes: int) -> int:
        words = text_bytes // 6  # an English word and its space
        return 4 + 8 * words // self.sample

    def drops(self, signatures: Signatures, candidates: np.ndarray) -> np.ndarray:
        from lmu_scaling.corpus.overlap import overlap

        return candidates & overlap(signatures, candidates).above(self.max_share)

    def measure(self, signatures: Signatures, kept: np.ndarray) -> list[dict[str, Any]]:
        from lmu_scaling.corpus.overlap import overlap

        return overlap(signatures, kept).by_split(self.max_share)
