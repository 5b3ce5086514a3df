"""Documents, and the parser that reads them from JSON lines.

A source is read in blocks, lists of documents of about a megabyte: a Python object per document would cost a quarter of
the fastest tokenizer's time. Unreadable input does not raise an exception but gives a `Bad` record with reason and
place; the configuration decides whether it stops the run (`corpus.on_bad_document`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

# Limits the memory of a job; no text that a language model should see is longer.
MAX_DOCUMENT_BYTES = 64 << 20
BAD_REASONS = {
    "json": "a line is not JSON",
    "text": "a line has no text",
    "array": "a line is part of a JSON array; expected one object per line, without brackets and commas around them",
    "utf8": "a line is not UTF-8",
    "surrogate": "text contains half of a surrogate pair",
    "nul": "text contains NUL characters",
    "empty": "text is empty",
    "too_long": f"a document is longer than {MAX_DOCUMENT_BYTES >> 20} MiB",
    "truncated": "a file or archive member ends too early",
    "format": "a file or archive member is not in the format that its name says",
    "bomb": "a file or archive member is a decompression bomb",
}


@dataclass(frozen=True)
class Bad:
    """Something unreadable: its reason (a key of BAD_REASONS), its place, and the bytes of the source it concerns."""

    reason: str
    where: str
    bytes: int


@dataclass
class Block:
    """Consecutive documents: texts, the language their metadata names, and what could not be read among them."""

    texts: list[str] = field(default_factory=list)
    languages: list[str | None] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)

    def add(self, text: Any, language: Any, where: str) -> None:
        """Add a document, or a `Bad` record if it is not valid."""
        if isinstance(text, list) and all(isinstance(piece, str) for piece in text):
            text = "\n\n".join(text)
        if not isinstance(text, str):
            self.bad.append(Bad("text", where, 0))
        elif reason := defect(text):
            self.bad.append(Bad(reason, where, len(text)))
        else:
            self.texts.append(text)
            self.languages.append(language if isinstance(language, str) else None)


# Neither can be part of a reference cycle, so the garbage collector need not track them.
class _Meta(msgspec.Struct, gc=False):
    lang: Any = None


class _Line(msgspec.Struct, gc=False):
    text: str | list[str]
    meta: _Meta | None = None


_DECODER = msgspec.json.Decoder(_Line)
# The only way to write a NUL in JSON. Searching the bytes with a pattern takes half the time of searching the decoded
# strings, or of `in`.
NUL = re.compile(rb"\\u0000")


def defect(text: str) -> str | None:
    """The reason why a string is not a valid document (a key of BAD_REASONS), or None."""
    if not text or text.isspace():
        return "empty"
    if "\0" in text:
        return "nul"
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        return "surrogate"
    return "too_long" if size > MAX_DOCUMENT_BYTES else None


def parse_lines(data: bytes, name: str, records: int) -> tuple[Block, int]:
    """Parse whole JSON lines `{"text": …, "meta": {"lang": …}}`; returns also the number of records so far."""
    if NUL.search(data):
        return _parse_one_by_one(data, name, records)
    try:
        lines = _DECODER.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_one_by_one(data, name, records)
    block = Block()
    texts, languages = block.texts, block.languages
    for i, line in enumerate(lines, records + 1):
        text, meta = line.text, line.meta
        # The parser has checked UTF-8 and surrogates, the reader the length of lines; NULs were searched for above.
        if type(text) is str and text and not text.isspace():
            texts.append(text)
            languages.append(meta.lang if meta is not None and type(meta.lang) is str else None)
        else:
            block.add(text, None if meta is None else meta.lang, f"{name}, record {i}")
    return block, records + len(lines)


def _parse_one_by_one(data: bytes, name: str, records: int) -> tuple[Block, int]:
    block = Block()
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        records += 1
        where = f"{name}, record {records}"
        try:
            record = _DECODER.decode(line)
            block.add(record.text, record.meta.lang if record.meta else None, where)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _diagnose(block, line, where)
    return block, records


def _diagnose(block: Block, line: bytes, where: str) -> None:
    """Find out what is wrong with a line, with the slower standard parser, which may also accept it."""
    try:
        # Numbers as floats: they are not used, and Python refuses integers of more than 4,300 digits.
        record = json.loads(line.decode("utf-8-sig"), parse_int=float)
    except UnicodeDecodeError:
        block.bad.append(Bad("utf8", where, len(line)))
    except (json.JSONDecodeError, RecursionError):
        start, end = line.lstrip(b"\xef\xbb\xbf \t")[:1], line.rstrip()[-1:]
        array = start == b"[" or (start == b"{" and end in b",]") or line.strip() == b"]"
        block.bad.append(Bad("array" if array else "json", where, len(line)))
    else:
        if isinstance(record, list):
            block.bad.append(Bad("array", where, len(line)))
            return
        if not isinstance(record, dict) or "text" not in record:
            block.bad.append(Bad("text", where, len(line)))
            return
        meta = record.get("meta")
        block.add(record["text"], meta.get("lang") if isinstance(meta, dict) else None, where)
