"""The files of one part that `encode` writes and later jobs read; missing or damaged files raise a clear error."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from lmu_scaling.errors import CorpusError


def part_files(folder: Path, part: int) -> dict[str, Path]:
    """A part's token ids, the signatures of its documents, and its counts."""
    stem = f"{part:05d}"
    names = {"tokens": f"{stem}.tokens.bin", "signatures": f"{stem}.signatures.npz", "counts": f"{stem}.json"}
    return {key: Path(folder) / name for key, name in names.items()}


@contextmanager
def damage_is_explained(path: Path) -> Iterator[None]:
    """Turn the errors of opening `path` and reading its arrays into a `CorpusError`."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CorpusError(
            f"missing or damaged: {error}", str(path), f"make it again: snakemake --cores all --forcerun {path}"
        ) from error


class SignatureFiles:
    """The signatures of the documents of several parts, in order (see `corpus.filters.Signatures`)."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._all: dict[str, np.ndarray] = {}

    def add(self, name: str, values: np.ndarray) -> None:
        """Something derived from the signatures; only `all` returns it."""
        self._all[name] = values

    def by_part(self, name: str) -> Iterator[np.ndarray]:
        for path in self.paths:
            with damage_is_explained(path), np.load(path) as arrays:
                values = arrays[name]
            yield values

    def all(self, name: str) -> np.ndarray:
        if name not in self._all:
            self._all[name] = np.concatenate(list(self.by_part(name)))
        return self._all[name]
