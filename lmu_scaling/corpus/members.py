"""Members: the files, archive members, row groups or shards of a source, and the readers for each format.

A member is plain data, stored in `source.json`, so that every job can open its share of the source by itself. Tar
archives are read in place by seeking: nothing is ever written to disk under a name from an archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmu_scaling.corpus.documents import MAX_DOCUMENT_BYTES, Bad, Block, parse_lines
from lmu_scaling.corpus.streams import StreamError, decompressed, raw_bytes, readable
from lmu_scaling.runtime import read_json

# Suffix → (format of the content, compression).
FORMATS = {
    ".jsonl": ("jsonl", ""),
    ".jsonl.zst": ("jsonl", "zst"),
    ".jsonl.gz": ("jsonl", "gz"),
    ".parquet": ("parquet", ""),
    ".txt": ("txt", ""),
    ".txt.gz": ("txt", "gz"),
}


@dataclass(frozen=True)
class Member:
    """One piece of a source: `size` bytes at `offset` of `path`, or what `options` say for the other formats."""

    name: str
    format: str
    size: int
    path: str = ""
    offset: int = 0
    codec: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in ("", {})}


def read_members(source: Path) -> list[Member]:
    """The members that source.json lists."""
    return [Member(**member) for member in read_json(source, "members")["members"]]


def format_of(name: str) -> tuple[str, str] | None:
    """Format and compression by the suffix of a file name, or None if it is not a known suffix."""
    return next((FORMATS[suffix] for suffix in FORMATS if name.lower().endswith(suffix)), None)


def share(members: list[Member], part: int, parts: int) -> list[Member]:
    """The contiguous run of members that belongs to a part; parts get about equally many bytes."""
    total = sum(member.size for member in members)
    chosen, before = [], 0
    for member in members:
        middle = before + member.size / 2
        if min(int(parts * middle / max(total, 1)), parts - 1) == part:
            chosen.append(member)
        before += member.size
    return chosen


def read_blocks(member: Member) -> Iterator[Block]:
    """All documents of a member, in order; damage gives a `Bad` record in the last block, not an exception."""
    reader = {"jsonl": _read_jsonl, "txt": _read_txt, "parquet": _read_parquet, "huggingface": _read_huggingface}
    yield from reader[member.format](member)


def _read_jsonl(member: Member) -> Iterator[Block]:
    stream = decompressed(raw_bytes(member.path, member.offset, member.size), member.codec)
    lines = _Lines(member.name)
    cut = member.options.get("cut", False)
    try:
        for data in stream:
            yield lines.feed(data)
        if not cut:
            yield lines.end()
    except StreamError as error:
        if cut and error.reason == "truncated":
            return  # as it must, if only the beginning of a compressed file is there
        # The incomplete last line is lost with the rest of the member.
        yield Block(bad=[Bad(error.reason, f"{member.name}: {error.detail}", member.size - error.good)])


class _Lines:
    """Splits a byte stream into whole lines; a line that is too long is discarded while it is read."""

    def __init__(self, name: str) -> None:
        self.name, self.rest, self.held, self.dropped, self.records = name, [b""], 0, 0, 0

    def feed(self, data: bytes) -> Block:
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._hold(data)
            return Block()
        bad, start = [], data.find(b"\n") + 1
        if self.dropped or self.held + start > MAX_DOCUMENT_BYTES:
            bad = [self._too_long(start)]
        else:
            start = 0
        whole = b"".join([*self.rest, memoryview(data)[start:end]])
        block, self.records = parse_lines(whole, self.name, self.records)
        block.bad[:0] = bad
        self.rest, self.held = [data[end:]], len(data) - end
        return block

    def _hold(self, data: bytes) -> None:
        if self.dropped or self.held + len(data) > MAX_DOCUMENT_BYTES:
            self.dropped += self.held + len(data)
            self.rest, self.held = [b""], 0
        else:
            self.rest.append(data)
            self.held += len(data)

    def _too_long(self, more: int) -> Bad:
        self.records += 1
        size = self.dropped + self.held + more
        self.rest, self.held, self.dropped = [b""], 0, 0
        return Bad("too_long", f"{self.name}, record {self.records}", size)

    def end(self) -> Block:
        if self.dropped:
            return Block(bad=[self._too_long(0)])
        return parse_lines(b"".join(self.rest), self.name, self.records)[0] if self.held else Block()


def _read_txt(member: Member) -> Iterator[Block]:
    """The whole file as one document."""
    block, data = Block(), bytearray()
    try:
        for piece in decompressed(raw_bytes(member.path, member.offset, member.size), member.codec):
            data += piece
            if len(data) > MAX_DOCUMENT_BYTES:
                raise StreamError("too_long", "the rest is not read")
        block.add(_decoded(data, member.options.get("fallback")), None, member.name)
    except StreamError as error:
        block.bad.append(Bad(error.reason, f"{member.name}: {error.detail}", member.size))
    except UnicodeDecodeError:
        block.bad.append(Bad("utf8", member.name, member.size))
    yield block


def _decoded(data: bytearray, fallback: str | None) -> str:
    """Text in UTF-8; with `fallback`, old files without NULs, and in that encoding if they are not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if fallback is None:
            raise
        text = data.decode(fallback)
    return text.replace("\0", "") if fallback else text


def _read_parquet(member: Member) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable(member.path), open(member.path, "rb"):
        column = member.options["text"]
    language = member.options.get("language")
    try:
        with pq.ParquetFile(member.path) as file:
            columns = [column, language] if language else [column]
            batches = file.iter_batches(256, row_groups=[member.options["row_group"]], columns=columns)
            row = 0
            for batch in batches:
                texts = batch.column(0).to_pylist()
                languages = batch.column(1).to_pylist() if language else [None] * len(texts)
                block = Block()
                for text, lang in zip(texts, languages, strict=True):
                    row += 1
                    block.add(text, lang, f"{member.name}, row {row}")
                yield block
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        yield Block(bad=[Bad("format", f"{member.name}: {error}", member.size)])


def _read_huggingface(member: Member) -> Iterator[Block]:
    from lmu_scaling.corpus.huggingface import stream

    yield from stream(member.name, member.options)
