"""Filters: one module each, which holds the settings and the decision. A new module here is a new filter.

The paper says only "after additional filtering … approximately 8 billion tokens" (section 5), so the chain is explicit:
the configuration lists filters in order, each with its settings, and the effect of each one is reported.

A module `<name>.py` defines one subclass of `DocumentFilter` (looks at one document at a time), `PieceFilter` (keeps
pieces of documents) or `CorpusFilter` (compares documents) with the field `name: Literal["<name>"]`. The configuration
imports every filter, so modules import NumPy and other heavy packages inside their methods only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pydantic import Field

from lmu_scaling.errors import ConfigError
from lmu_scaling.fields import Section

if TYPE_CHECKING:
    import numpy as np


class Filter(Section):
    """Settings of a filter; the docstring and the fields of subclasses describe it in the configuration's schema."""

    name: str


class DocumentFilter(Filter):
    """A filter that looks at one document at a time."""

    needs_tokens: ClassVar[bool] = False  # `apply` uses the number of tokens
    rewrites: ClassVar[bool] = False  # `apply` may return a changed text

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        """Return the text to keep, or None to drop the document.

        `language` is what the document's metadata says; `tokens` is 0 unless the filter sets `needs_tokens`.
        """
        raise NotImplementedError


class PieceFilter(DocumentFilter):
    """A filter that keeps pieces of documents, such as paragraphs, each only where it occurs first in the corpus.

    Whether a piece occurred before is found by the job `survey` (see `corpus/repeats.py`).
    """

    rewrites: ClassVar[bool] = True
    repeated: Literal["drop", "keep"] = Field("drop", description="What to do with pieces that occurred before")

    def pieces(self, text: str) -> list[str]:
        """The pieces to keep, in order."""
        raise NotImplementedError

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        """The document without regard to other documents."""
        return "\n\n".join(self.pieces(text)) or None


def surveyed(chain: Sequence[Filter]) -> PieceFilter | None:
    """The filter that drops pieces which occurred before, if the chain has one."""
    found = (item for item in chain if isinstance(item, PieceFilter) and item.repeated == "drop")
    return next(found, None)


class Signatures(Protocol):
    """Signatures of all documents in order: `hash` (2 × uint64), `tokens`, `bytes`, and what filters `sign`.

    `split` (0 train, 1 validation, 2 test) follows from the hash, so only `all` knows it.
    """

    def by_part(self, name: str) -> Iterator[np.ndarray]:
        """One array per part of the corpus, read when it is needed."""

    def all(self, name: str) -> np.ndarray:
        """The arrays of all parts in one."""


class CorpusFilter(Filter):
    """A filter that compares documents with each other."""

    def sign(self, texts: list[str]) -> dict[str, np.ndarray]:
        """Named arrays in the documents' order, if their hash is not enough to compare them with others."""
        return {}

    def signature_bytes(self, text_bytes: int) -> int:
        """Size of what `sign` returns for a document of so many bytes."""
        return 0

    def drops(self, signatures: Signatures, candidates: np.ndarray) -> np.ndarray:
        """Mask of the documents to drop among `candidates` (a mask, too)."""
        raise NotImplementedError

    def measure(self, signatures: Signatures, kept: np.ndarray) -> list[dict[str, Any]]:
        """Rows for tokens/overlap.csv: how much of the held-out documents in the mask `kept` is in training."""
        return []


@cache
def filter_class(name: str) -> type[Filter]:
    """The class that module `name` of this package defines."""
    module = importlib.import_module(f"{__name__}.{name}")
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Filter)]
    return next(kind for kind in found if kind.__module__ == module.__name__)


@cache
def registered() -> dict[str, type[Filter]]:
    """All filters by name, in alphabetical order."""
    return {name: filter_class(name) for name in sorted(module.name for module in pkgutil.iter_modules(__path__))}


def ordered(chain: list[Filter]) -> list[Filter]:
    """The chain itself; raises if its order is impossible."""
    for problem, remedy in order_problems([item.name for item in chain]):
        raise ConfigError(problem, "corpus.filters", remedy)
    return chain


def order_problems(names: list[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the order of a chain, and what to do about it."""
    kinds = {name: filter_class(name) for name in names}
    for name in kinds:
        if names.count(name) > 1:
            yield f"filter {name} occurs twice", "join the two, so that each is reported"
    in_pieces = [name for name, kind in kinds.items() if issubclass(kind, PieceFilter)]
    if len(in_pieces) > 1:
        yield f"filters {' and '.join(in_pieces)} both keep pieces of documents", "choose one of them"
    for i, name in enumerate(names):
        compares = [other for other in names[:i] if issubclass(kinds[other], CorpusFilter)]
        counts = [other for other in names[:i] if getattr(kinds[other], "needs_tokens", False)]
        if compares and not issubclass(kinds[name], CorpusFilter):
            yield f"filter {name} comes after {compares[0]}, which compares documents", f"put {name} before it"
        elif counts and getattr(kinds[name], "rewrites", False):
            yield f"filter {name} changes text after {counts[0]} has counted its tokens", f"put {name} before it"
