"""Filter `token_ratio`: by tokens per character, counted with the configured vocabulary."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lmu_scaling.corpus.filters import DocumentFilter


class TokenRatioFilter(DocumentFilter):
    """Drop text that GPT-2's tokenizer splits into very short tokens (other scripts, base64, logs)."""

    needs_tokens: ClassVar[bool] = True
    name: Literal["token_ratio"]
    max_tokens_per_character: float = Field(0.5, gt=0, description="Most tokens per character")

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        return text if tokens <= self.max_tokens_per_character * len(text) else None
