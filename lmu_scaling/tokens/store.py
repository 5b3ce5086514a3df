"""Reads tokens: a split's shards as one memory-mapped stream, cut into windows of n inputs and n targets.

Window i is stream[i n : i n + n + 1], so every token except the very first is a target exactly once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.errors import TokensError
from lmu_scaling.runtime import read_json, sha256_file

DESCRIBED = ("digest", "dtype", "vocab", "eot", "splits", "shards")  # what an index must have


class TokenStore:
    """One split of a tokenised corpus; `directory` holds index.json and the shards."""

    def __init__(self, directory: str | Path, split: str, verify: bool = False) -> None:
        self.directory, self.split = Path(directory), split
        self.index: dict[str, Any] = read_json(self.directory / "index.json", *DESCRIBED)
        if split not in self.index["splits"]:
            raise TokensError(f"no split {split!r}", str(directory), f"choose one of {', '.join(self.index['splits'])}")
        facts = self.index["splits"][split]
        self.vocab: int = self.index["vocab"]
        self.eot: int = self.index["eot"]
        self.digest: str = self.index["digest"]
        self.bytes: int = facts["bytes"]
        self.documents: int = facts["documents"]
        shards = [s for s in self.index["shards"] if s["split"] == split and s["tokens"]]
        self._shards = [self._open(shard, verify) for shard in shards]
        # _starts[k] is the stream position of shard k's first token; the last entry is the stream's length.
        self._starts = np.r_[0, np.cumsum([len(shard) for shard in self._shards], dtype=np.int64)]

    def _open(self, shard: dict[str, Any], verify: bool) -> np.ndarray:
        path = self.directory / shard["file"]
        dtype = np.dtype(self.index["dtype"])
        size = path.stat().st_size if path.is_file() else -1
        if size != shard["tokens"] * dtype.itemsize:
            found = "is missing" if size < 0 else f"has {size} bytes instead of {shard['tokens'] * dtype.itemsize}"
            raise TokensError(f"a shard {found}", str(path), "make it again: snakemake --cores all --forcerun index")
        if verify and (seen := sha256_file(path)) != shard["sha256"]:
            raise TokensError(
                f"a shard is damaged: sha256 {seen} instead of {shard['sha256']}",
                str(path),
                f"restore it from a copy, or make it again: snakemake --cores all --forcerun {path}",
            )
        # A plain array view: slicing np.memmap itself costs as much as copying a window.
        return np.memmap(path, dtype, "r").view(np.ndarray)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def windows(self, n: int) -> int:
        """Number of non-overlapping windows with n targets."""
        return max(len(self) - 1, 0) // n

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Tokens start … stop - 1 of the stream (uint16), across shards."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"tokens {start}:{stop} of a stream of {len(self)}")
        pieces = []
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(self._starts[shard + 1]))
            first = int(self._starts[shard])
            pieces.append(self._shards[shard][start - first : end - first])
            start, shard = end, shard + 1
        return np.concatenate(pieces) if pieces else np.zeros(0, np.uint16)

    def gather(self, indices: np.ndarray, n: int) -> np.ndarray:
        """Windows `indices` as int64 [len(indices), n + 1]."""
        indices, count = np.asarray(indices, np.int64), self.windows(n)
        if outside := [index for index in indices.tolist() if not 0 <= index < count]:
            raise IndexError(f"window {outside[0]} of {count}")
        out = np.empty((len(indices), n + 1), np.int64)
        starts = indices * n
        shards = np.searchsorted(self._starts, starts, side="right") - 1
        offsets = starts - self._starts[shards]
        for row, (shard, offset) in enumerate(zip(shards.tolist(), offsets.tolist(), strict=True)):
            piece = self._shards[shard][offset : offset + n + 1]
            whole = len(piece) == n + 1  # else the window continues in the next shard
            out[row] = piece if whole else self.slice(int(starts[row]), int(starts[row]) + n + 1)
        return out

    def document_bounds(self) -> np.ndarray:
        """Stream positions where documents begin, and the stream's end: document k is bounds[k] … bounds[k + 1] - 1."""
        ends = [np.flatnonzero(s == self.eot) + a + 1 for s, a in zip(self._shards, self._starts[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *ends])
