"""The filters that look at one document at a time; `duplicates.py` has those that compare documents.

The paper says only "after additional filtering … approximately 8 billion tokens" (section 4), so the chain is explicit:
the configuration lists filters in order, each has its settings, and each one's effect is counted. A filter's settings
come as an object with the attributes that `lmu_scaling.sections` defines for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmu_scaling.errors import ConfigError

# (text, language named by the metadata, number of tokens) → keep?
Keep = Callable[[str, str | None, int], bool]
NEEDS_TOKENS = {"token_ratio"}
COMPARES_DOCUMENTS = ("exact_duplicates", "near_duplicates")
# Words of English prose take 6 characters with their space; a prefix of 12 per wanted word nearly always decides.
PREFIX_PER_WORD = 12


def document_filters(filters: list[Any]) -> list[tuple[str, Keep]]:
    """The chain up to the duplicates, as (name, keep) pairs; duplicates have to come last."""
    names = [item.name for item in filters]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"filter {twice[0]} occurs twice", "corpus.filters", "join the two, so that each is reported")
    first = next((i for i, name in enumerate(names) if name in COMPARES_DOCUMENTS), len(names))
    late = [name for name in names[first:] if name not in COMPARES_DOCUMENTS]
    if late:
        raise ConfigError(
            f"filter {late[0]} stands behind {names[first]}",
            "corpus.filters",
            "put filters that look at single documents before those that compare documents",
        )
    return [(item.name, _BUILD[item.name](item)) for item in filters[:first]]


def _language(settings: Any) -> Keep:
    accept, missing = frozenset(settings.accept), settings.missing == "keep"
    return lambda text, language, tokens: missing if language is None else language in accept


def _length(settings: Any) -> Keep:
    low, high = settings.min_characters, settings.max_characters
    if high is None:
        return lambda text, language, tokens: len(text) >= low
    return lambda text, language, tokens: low <= len(text) <= high


def _unique_words(settings: Any) -> Keep:
    low, share = settings.min_unique, settings.min_share

    def keep(text: str, language: str | None, tokens: int) -> bool:
        # The last word of a prefix may be cut, so it does not count.
        if not share and len(set(text[: PREFIX_PER_WORD * low].split())) > low:
            return True
        words = text.split()
        unique = len(set(words))
        return unique >= low and unique >= share * len(words)

    return keep


def _token_ratio(settings: Any) -> Keep:
    most = settings.max_tokens_per_character
    return lambda text, language, tokens: tokens <= most * len(text)


_BUILD: dict[str, Callable[[Any], Keep]] = {
    "language": _language,
    "length": _length,
    "unique_words": _unique_words,
    "token_ratio": _token_ratio,
}
