"""Filter `prose`: the paragraphs of running text in plain-text documents (RFCs, manuals, old books).

Lines are joined to paragraphs, across page breaks too; running headers and footers are removed. A paragraph is kept if
it is long enough and consists of letters and blanks for the most part, so headings, tables, code, diagrams and contents
are dropped. Page footers are lines that end in "[Page 3]"; a form feed without one is a line break.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from lmu_scaling.corpus.filters import PieceFilter
from lmu_scaling.fields import Positive, Share

FOOTER = re.compile(r"\[Page [0-9ivxlc]{1,6}\][ \t\r]*(?![^\n\f])")
# After a page break: blank lines, and a line by itself, which is the running header of the next page.
HEADER = re.compile(r"\s*+(?:[^\n]*+\n[^\S\n]*+\n\s*+)?")
BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
# "packet-\nswitched" was a compound before it was broken; "pre- and post-" is none.
BROKEN_COMPOUND = re.compile(r"(?<=[a-z])- (?!(?:and|or|to|nor)\b)(?=[a-z])")
SENTENCE_ENDS = ".:;?!"
CLOSING = SENTENCE_ENDS + ")]>\"'"
NOT_LETTERS = bytes(byte for byte in range(128) if not (chr(byte).isalpha() or byte == 32))


class ProseFilter(PieceFilter):
    """Keep the paragraphs that are sentences; drop headings, tables, code, diagrams, page headers and footers."""

    name: Literal["prose"]
    min_characters: Positive = Field(80, description="Shorter paragraphs are dropped [characters]")
    min_words: Positive = Field(12, description="Paragraphs with fewer words are dropped [words]")
    min_letters: Share = Field(0.8, description="Fewest letters and blanks, as a share of a paragraph's characters")
    sentence_end: bool = Field(False, description="Drop paragraphs that do not end like a sentence")

    def pieces(self, text: str) -> list[str]:
        blocks = BLANK_LINES.split(without_page_breaks(text))
        joined = (paragraph(block) for block in blocks if len(block) >= self.min_characters)
        return [found for found in joined if self._is_prose(found)]

    def _is_prose(self, found: str) -> bool:
        if len(found) < self.min_characters or found.count(" ") + 1 < self.min_words:
            return False
        if self.sentence_end and found[-1] not in CLOSING:
            return False
        # Control characters occur in overstruck headings and in files that are no text.
        return found.isprintable() and letters(found) >= self.min_letters * len(found)


def paragraph(block: str) -> str:
    """The lines of a block as one line, with single blanks."""
    joined = " ".join(block.split())
    return BROKEN_COMPOUND.sub("-", joined) if "- " in joined else joined


def letters(text: str) -> int:
    """Number of letters and blanks."""
    if text.isascii():
        return len(text.encode().translate(None, NOT_LETTERS))
    return sum(character.isalpha() or character == " " for character in text)


def without_page_breaks(text: str) -> str:
    """The text without page footers and headers; a paragraph that a page break interrupts is continuous again."""
    kept: list[str] = []
    start = 0
    for footer in FOOTER.finditer(text):
        line = text.rfind("\n", start, footer.start()) + 1 or start
        if footer.start() < start:
            continue  # in what was taken for a header
        page = text[start:line].rstrip()
        header = HEADER.match(text, footer.end())
        start = header.end() if header else footer.end()
        goes_on = page[-1:] not in SENTENCE_ENDS or text[start : start + 1].islower()
        kept += [page, "\n" if goes_on else "\n\n"]
    return "".join([*kept, text[start:]]).replace("\f", "\n")
