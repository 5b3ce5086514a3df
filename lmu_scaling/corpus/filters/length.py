"""Filter `length`: by the number of characters."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from lmu_scaling.corpus.filters import DocumentFilter


class LengthFilter(DocumentFilter):
    """Keep documents of reasonable length."""

    name: Literal["length"]
    min_characters: int = Field(0, ge=0, description="Shorter documents are dropped [characters]")
    max_characters: int | None = Field(
        None, gt=0, description="Longer documents are dropped [characters]; null: no limit"
    )

    @model_validator(mode="after")
    def _bounds_leave_something(self) -> Self:
        low, high = self.min_characters, self.max_characters
        if high is not None and low > high:
            raise ValueError(f"no text has at least {low} and at most {high} characters")
        return self

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        return text if self.min_characters <= len(text) <= (self.max_characters or math.inf) else None
