"""Filter `unique_words`: by the number of different words, and their share of all words."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lmu_scaling.corpus.filters import DocumentFilter
from lmu_scaling.fields import Share

# An English word and its space take 6 characters on average, so a prefix of 12 per word almost always decides.
PREFIX_PER_WORD = 12


class UniqueWordsFilter(DocumentFilter):
    """Drop lists, tables and repeated boilerplate."""

    name: Literal["unique_words"]
    min_unique: int = Field(0, ge=0, description="Fewest different words [words]")
    min_share: Share = Field(0.0, description="Fewest different words as a share of all words")

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        low, share = self.min_unique, self.min_share
        # The last word of the prefix may be incomplete, so it does not count.
        if not share and len(set(text[: PREFIX_PER_WORD * low].split())) > low:
            return text
        words = text.split()
        unique = len(set(words))
        return text if unique >= low and unique >= share * len(words) else None
