"""A sample of a remote tar archive: pieces of its members, fetched by HTTP ranges without the rest of the archive.

The archive's headers are read one by one, which gives all members and their sizes. Points at equal distances in the
archive choose the members: one in which n points lie gives its first n pieces. So every member contributes about in
proportion to its size, and the choice is a function of the archive and of `corpus.sample` alone. A piece is the
beginning of a compressed file, which can be read up to the place where it was cut.

There is no checksum for a part of the archive. Each piece must decompress, all answers of a server must agree with the
archive's size in the catalogue, everything comes from one mirror, and the pieces' sha256 are the source's identity.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmu_scaling.corpus.archives import archive_members, tar_members
from lmu_scaling.corpus.download import MirrorFailed, RetryLimits, check_space, locked
from lmu_scaling.corpus.members import Member
from lmu_scaling.corpus.remote import RemoteFile, SeekableHeaders
from lmu_scaling.corpus.streams import StreamError, decompressed, raw_bytes
from lmu_scaling.errors import CorpusError, DownloadError
from lmu_scaling.runtime import byte_size, disk_full_is_explained, progress, sha256_bytes

# Enough pieces to spread a sample over the archive; each much longer than a compressed block of 128 kB of text.
MOST_PIECES = 32
SHORTEST_PIECE = 1 << 20
ENOUGH = 0.9  # of the sample's bytes; short members have less than their pieces, then more points are tried
MOST_MEMBERS = 100_000
Sample = tuple[list[Member], dict[str, Any]]


def local_sample(path: Path, sample: int, scratch: Path) -> Sample:
    """The sample of an archive on this machine: the documents that `remote_sample` fetches of the same archive."""
    return _described(choose(archive_members(path, scratch), sample, str(path)), path)


def remote_sample(entry: dict[str, Any], folder: Path, sample: int, limits: RetryLimits | None = None) -> Sample:
    """The sample of a catalogued archive from the first mirror that delivers it."""
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    with disk_full_is_explained(folder), locked(folder / "sample"):
        for url in entry["mirrors"]:
            mirror = folder / sha256_bytes(url.encode())[:12]
            try:
                return _from_mirror(RemoteFile(url, mirror, entry["size"], limits or RetryLimits()), sample, mirror)
            except MirrorFailed as failure:
                failures.append(f"{url}: {failure}")
    reasons = "\n    ".join(failures)
    raise DownloadError(
        f"no mirror delivered a sample of {entry['file']}:\n    {reasons}",
        str(folder),
        "run again later (what was fetched is kept), or remove corpus.sample to download the whole file",
    )


def _from_mirror(remote: RemoteFile, sample: int, folder: Path) -> Sample:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        chosen = choose(_index(remote), sample, remote.url)
    except CorpusError as error:
        _forget(folder)
        raise MirrorFailed(error.what) from error
    missing = [member for member in chosen if not remote.path(member.offset, member.size).exists()]
    check_space(folder, "the sample", sum(member.size for member in missing))
    fetched = [_piece(remote, member) for member in progress(chosen, "sampling", len(chosen), "pieces")]
    return _described(chosen, folder, fetched)


def _index(remote: RemoteFile) -> list[Member]:
    """All members of the archive, from its headers."""
    headers: Any = SeekableHeaders(remote)
    found = tar_members(headers, remote.total, remote.url)
    members = list(itertools.islice(progress(found, "reading the archive's headers", None, "members"), MOST_MEMBERS))
    if len(members) == MOST_MEMBERS:
        raise CorpusError("too many members to read their headers", remote.url, "remove corpus.sample")
    return members


def _forget(folder: Path) -> None:
    """Remove what came from a mirror that sent something else than the archive."""
    for path in folder.iterdir():
        path.unlink()


def _piece(remote: RemoteFile, member: Member) -> Member:
    """Fetch a piece and check that it is what its name says."""
    path = remote.fetch(member.offset, member.size)
    try:
        for _ in decompressed(raw_bytes(str(path), 0, member.size), member.codec):
            pass
    except StreamError as error:
        if error.reason != "truncated" or "cut" not in member.options:
            path.unlink()
            raise MirrorFailed(f"{member.name} is damaged: {error.detail}") from error
    return dataclasses.replace(member, path=str(path), offset=0)


def choose(members: Sequence[Member], sample: int, where: str) -> list[Member]:
    """Members cut to their share of `sample` bytes; the same ones whatever their order."""
    ordered = sorted(members, key=lambda member: member.offset)
    ends = list(itertools.accumulate(member.size for member in ordered))
    total = ends[-1] if ends else 0
    if not 0 < sample < total:
        raise CorpusError(
            f"a sample of {byte_size(sample)} is more than the archive has ({byte_size(total)})",
            where,
            "make corpus.sample smaller, or remove it to use the whole archive",
        )
    pieces = max(1, min(MOST_PIECES, sample // SHORTEST_PIECE))
    while pieces <= 4 * len(ordered):
        points = Counter(bisect.bisect_right(ends, (2 * i + 1) * total // (2 * pieces)) for i in range(pieces))
        sizes = [min(member.size, points[i] * sample // pieces) for i, member in enumerate(ordered)]
        if sum(sizes) >= ENOUGH * sample:
            break
        pieces *= 2
    else:  # so many points that each member has its share of them
        sizes = [member.size * sample // total for member in ordered]
    return [_cut(member, size) for member, size in zip(ordered, sizes, strict=True) if size]


def _cut(member: Member, size: int) -> Member:
    if size == member.size:
        return member
    return dataclasses.replace(member, size=size, options={**member.options, "cut": True})


def _described(chosen: list[Member], place: Path, fetched: list[Member] | None = None) -> Sample:
    """The members to read, and the facts of the sample: its size, and the checksum of all its pieces."""
    readable = fetched or chosen
    lines = [
        f"{piece.name} {piece.offset} {piece.size} {_sha256(member)}\n"
        for piece, member in zip(chosen, readable, strict=True)
    ]
    size = sum(member.size for member in readable)
    return readable, {"path": str(place), "size": size, "sha256": sha256_bytes("".join(lines).encode())}


def _sha256(member: Member) -> str:
    digest = hashlib.sha256()
    for data in raw_bytes(member.path, member.offset, member.size):
        digest.update(data)
    return digest.hexdigest()
