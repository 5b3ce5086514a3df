"""Byte streams from a file or from a range of an archive, decompressed in pieces of bounded size.

The decompressor gets a few kilobytes at a time, so that a hostile stream cannot make one call return gigabytes (zstd
packs 128 KiB into 4 bytes), and stops when the output is more than MAX_RATIO times the input.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zstandard

from lmu_scaling.errors import CorpusError

READ = 1 << 20
FEED = 4 << 10
# Output is passed on once it has this size; 256 KiB keeps line buffers in the processor's cache.
PIECE = 1 << 18
LARGEST = 1 << 20
# Web text compresses 3:1, very repetitive documents perhaps 100:1.
MAX_RATIO = 1000
FREE_OUTPUT = 64 << 20
MAX_WINDOW = 1 << 27


class StreamError(Exception):
    """A stream ends early ("truncated"), has another format ("format"), or is a decompression bomb ("bomb").

    `good` is the number of bytes of the file or member before the damage, to within a few kilobytes.
    """

    def __init__(self, reason: str, detail: str, good: int = 0) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.good = reason, detail, good


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turn errors of opening or reading a file into a `CorpusError`; they are not counted as bad documents."""
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"cannot be read: {error.strerror or error}",
            str(error.filename or path),
            "make the file readable and run again; if it was removed, run `snakemake --forcerun fetch`",
        ) from error


def raw_bytes(path: str, offset: int, size: int) -> Iterator[bytes]:
    """`size` bytes of a file from `offset` on; raises if the file has fewer."""
    with readable(path), open(path, "rb") as file:
        file.seek(offset)
        left = size
        while left > 0:
            data = file.read(min(READ, left))
            if not data:
                raise StreamError("truncated", f"{left} bytes are missing at the end", size - left)
            left -= len(data)
            yield data


def decompressed(chunks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    """Decompress a sequence of frames ("zst") or members ("gz"), or pass bytes on ("").

    If the stream is damaged, everything before the damage is yielded before the error is raised.
    """
    held: list[bytes] = []
    size = 0
    try:
        for out in _decoded(chunks, codec) if codec else chunks:
            held.append(out)
            size += len(out)
            if size >= PIECE:
                whole, held, size = b"".join(held), [], 0
                for start in range(0, len(whole), LARGEST):
                    yield whole[start : start + LARGEST]
    except StreamError:
        yield b"".join(held)
        raise
    if held:
        yield b"".join(held)


def _decoded(chunks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    consumed = produced = 0
    decoder: Any = None
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), FEED):
            feed: Any = view[start : start + FEED]
            consumed += len(feed)
            while len(feed):
                decoder = decoder or _decoder(codec)
                out = _decode(decoder, feed, codec, consumed - len(feed))
                produced += len(out)
                yield out
                feed = b""
                if decoder.eof:
                    feed, decoder = decoder.unused_data, None
            if produced > MAX_RATIO * consumed + FREE_OUTPUT:
                raise StreamError("bomb", f"{consumed} bytes expand to more than {produced}", 0)
    if decoder is not None:
        raise StreamError("truncated", "the compressed stream is not finished", consumed)


def _decoder(codec: str) -> Any:
    if codec == "zst":
        return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    return zlib.decompressobj(wbits=31)


def _decode(decoder: Any, feed: Any, codec: str, before: int) -> bytes:
    try:
        return decoder.decompress(feed)
    except (zstandard.ZstdError, zlib.error) as error:
        raise StreamError("format", f"not readable as {codec}: {error}", before) from error
