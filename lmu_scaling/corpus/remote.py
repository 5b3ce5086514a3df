"""A file on a server of which only ranges are fetched, each kept as a file in a folder and never fetched twice."""

from __future__ import annotations

import os
from pathlib import Path

from lmu_scaling.corpus.download import Extent, RetryLimits, fill

BLOCK = 512
# A tar header and, behind it, the records of a long name.
HEADER_BYTES = 8 * BLOCK


class RemoteFile:
    """Ranges of the file at `url`, which has `total` bytes, in `folder`."""

    def __init__(self, url: str, folder: Path, total: int, limits: RetryLimits) -> None:
        self.url, self.folder, self.total, self.limits = url, folder, total, limits

    def path(self, offset: int, size: int) -> Path:
        return self.folder / f"{offset}-{size}"

    def fetch(self, offset: int, size: int) -> Path:
        """The file with this range; an interrupted transfer is continued."""
        target = self.path(offset, size)
        if not target.exists():
            partial = target.with_name(target.name + ".partial")
            fill(self.url, partial, Extent(offset, size, self.total), self.limits)
            os.replace(partial, target)
        return target


class SeekableHeaders:
    """What `tarfile` needs of a file to go from header to header: one small range is fetched for each."""

    def __init__(self, remote: RemoteFile) -> None:
        self.remote, self.position, self.start, self.block = remote, 0, 0, b""

    def tell(self) -> int:
        return self.position

    def seek(self, position: int) -> int:
        self.position = position
        return position

    def read(self, size: int) -> bytes:
        end = min(self.position + size, self.remote.total)
        if not self.start <= self.position <= end <= self.start + len(self.block):
            self.start = self.position // BLOCK * BLOCK
            wanted = min(max(HEADER_BYTES, end - self.start), self.remote.total - self.start)
            self.block = self.remote.fetch(self.start, wanted).read_bytes() if wanted > 0 else b""
        data = self.block[self.position - self.start : max(end - self.start, 0)]
        self.position += len(data)
        return data
