"""Tar archives: their members, found by seeking from header to header, or by unpacking a compressed archive.

A member is read in place, by its offset. A compressed archive cannot be read from the middle, so its documents are
copied, end to end, into one file in the folder for downloads. Nothing is ever written under a name from an archive.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from lmu_scaling.corpus.members import Member, format_of
from lmu_scaling.corpus.streams import FREE_OUTPUT, MAX_RATIO, READ, readable
from lmu_scaling.errors import CorpusError
from lmu_scaling.runtime import atomic_write

BLOCK = 512
COMPRESSED = (".tar.gz", ".tgz")
SUFFIXES = (".tar", *COMPRESSED)
KNOWN = ".jsonl, .jsonl.zst, .jsonl.gz and .txt"  # in an archive


def is_archive(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def archive_members(path: Path, scratch: Path) -> list[Member]:
    """The documents of an archive in order of names; `scratch` is the folder that a compressed one is unpacked into."""
    if path.name.lower().endswith(COMPRESSED):
        members = _unpacked(path, scratch)
    else:
        with readable(path), open(path, "rb") as file:
            members = list(tar_members(file, path.stat().st_size, str(path)))
    return sorted(members, key=lambda member: member.name)


def tar_members(file: IO[bytes], size: int, path: str) -> Iterator[Member]:
    """Regular files with a known suffix and a safe name; `file` is the archive, of `size` bytes."""
    with _explained(path), tarfile.open(fileobj=file, mode="r:", errors="backslashreplace") as tar:
        ignored = 0
        for info in _headers(tar):
            if member := _member(info, path, info.offset_data):
                yield member
            else:
                ignored += not info.isdir()
        complete = tar.offset + BLOCK <= size
    if not complete:
        raise CorpusError("the tar archive is truncated: its end marker is missing", path, _again(path))
    _tell_ignored(path, ignored)


def _unpacked(path: Path, scratch: Path) -> list[Member]:
    """Copy the documents of a compressed archive into one file; their members lie in that file."""
    target = scratch / f"{path.name}.unpacked"
    limit = MAX_RATIO * path.stat().st_size + FREE_OUTPUT
    members: list[Member] = []
    ignored = 0
    with _explained(str(path)), gzip.open(path, "rb") as stream, atomic_write(target, "wb") as out:
        with tarfile.open(fileobj=stream, mode="r|", errors="backslashreplace") as tar:
            for info in _headers(tar):
                if stream.tell() + info.size > limit:
                    raise CorpusError("the archive is a decompression bomb", str(path), "do not use it")
                if member := _member(info, str(target), out.tell()):
                    _copy(tar.extractfile(info), out, info.size)
                    members.append(member)
                else:
                    ignored += not info.isdir()
        while stream.read(READ):  # the checksum of a compressed stream is at its end
            pass
    _tell_ignored(str(path), ignored)
    return members


def _tell_ignored(path: str, count: int) -> None:
    if count:
        name = Path(path).name
        print(f"{name}: {count:,} members are ignored: links, unsafe names, or suffixes other than {KNOWN}")


def _copy(source: IO[bytes] | None, target: IO[bytes], size: int) -> None:
    while source is not None and size and (data := source.read(min(READ, size))):
        target.write(data)
        size -= len(data)
    if size:
        raise tarfile.ReadError("unexpected end of data")


def _member(info: tarfile.TarInfo, path: str, offset: int) -> Member | None:
    name, kind = PurePosixPath(info.name), format_of(info.name)
    if not info.isreg() or kind is None or kind[0] == "parquet" or name.is_absolute() or ".." in name.parts:
        return None
    if info.issparse():
        raise CorpusError(
            "a member of the tar archive is sparse (stored with holes)",
            f"{path}, {info.name}",
            "pack the archive again without --sparse",
        )
    return Member(info.name, kind[0], info.size, path, offset, kind[1])


def _headers(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members of an archive; raises on a header that points back, which would be an endless loop."""
    for info in tar:
        if info.size < 0 or tar.offset < info.offset_data:
            raise tarfile.ReadError("the size of a member is negative")
        yield info


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn the errors of reading an archive into a `CorpusError`."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"not a complete tar archive: {error}", path, _again(path)) from error
    except (ValueError, OverflowError) as error:
        raise CorpusError(f"a number in the tar archive is invalid: {error}", path, _again(path)) from error


def _again(path: str) -> str:
    return f"put a complete copy of {Path(path).name} in its place; if it was downloaded, move it away and run again"
