"""Filter `language`: by the language that the metadata names (the page's mark-up, not a detection)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lmu_scaling.corpus.filters import DocumentFilter


class LanguageFilter(DocumentFilter):
    """Keep documents whose metadata names an accepted language."""

    name: Literal["language"]
    accept: list[str] = Field(["en"], description="Accepted values of the document's `lang` (page mark-up)")
    missing: Literal["keep", "drop"] = Field("keep", description="What to do with documents that have no `lang`")

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        kept = self.missing == "keep" if language is None else language in self.accept
        return text if kept else None
