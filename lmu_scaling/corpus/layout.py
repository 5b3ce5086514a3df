"""Names of the files that jobs hand to each other; nothing else, so that looking them up loads nothing."""

from __future__ import annotations

from pathlib import Path


def part_files(folder: Path, part: int) -> dict[str, Path]:
    """A part's token ids, the signatures of its documents, and its counts."""
    stem = f"{part:05d}"
    names = {"tokens": f"{stem}.tokens.bin", "signatures": f"{stem}.signatures.npz", "counts": f"{stem}.json"}
    return {key: Path(folder) / name for key, name in names.items()}
