"""Rule `survey`: note which pieces (paragraphs) the documents of one part have, before any part is encoded.

Needed only if a filter drops pieces that occurred before (`corpus/repeats.py`). Writes `{i:05d}.survey.npz`: `hashes`
(uint64, sorted) of the part's pieces, and `counts`: 1, or 2 for a piece that occurs more than once in the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.corpus.filters import DocumentFilter, ordered, surveyed
from lmu_scaling.corpus.members import read_blocks, read_members, share
from lmu_scaling.corpus.repeats import Repeats, Survey, piece_hash, repeats_of
from lmu_scaling.jobs import Folder, Input, job
from lmu_scaling.runtime import Progress, atomic_write
from lmu_scaling.sections import AnyFilter
from lmu_scaling.tokens.part_files import damage_is_explained

# Pieces that are collected before they are merged into the survey: 8 MB of Python objects.
BATCH_PIECES = 1 << 17


def survey_file(folder: Path, part: int) -> Path:
    return folder / f"{part:05d}.survey.npz"


@job
def survey(filters: list[AnyFilter], parts: int, source: Input, part: int, out: Folder) -> dict[str, Any]:
    """Note the paragraphs of one part, so that those which occur again can be dropped.

    Args:
        filters: `corpus.filters`, as JSON
        parts: number of parts
        source: source.json
        part: number of the part, from 0
        out: folder for the part's files
    """
    chain = ordered(filters)
    item = surveyed(chain)
    found, hashes = Survey(), list[int]()
    if item is not None:
        # None of the filters before it needs tokens (see `order_problems`).
        before = [other for other in chain[: chain.index(item)] if isinstance(other, DocumentFilter)]
        mine = share(read_members(source), part, parts)
        with Progress(sum(member.size for member in mine), f"part {part}", "B") as bar:
            for member in mine:
                for block in read_blocks(member):
                    for text, language in zip(block.texts, block.languages, strict=True):
                        kept = _apply(before, text, language)
                        hashes += map(piece_hash, item.pieces(kept) if kept else ())
                if len(hashes) >= BATCH_PIECES:
                    found.add(hashes)
                    hashes = []
                bar.update(member.size)
    found.add(hashes)
    with atomic_write(survey_file(out, part), "wb") as file:
        np.savez(file, allow_pickle=False, **found.arrays())
    return {"pieces": len(found.hashes)}


def _apply(filters: Sequence[DocumentFilter], text: str | None, language: str | None) -> str | None:
    for item in filters:
        text = text and item.apply(text, language, 0)
    return text


def read_repeats(folder: Path, part: int, parts: int) -> Repeats:
    """What the surveys of all parts say about the pieces of one part."""
    surveys = []
    for i in range(parts):
        path = survey_file(folder, i)
        with damage_is_explained(path), np.load(path) as arrays:
            surveys.append({name: arrays[name] for name in ("hashes", "counts")})
    return repeats_of(surveys, part)
