"""Rule `shard`: write the kept documents of one part, by split, as flat uint16 files.

`{i:05d}.{split}.bin` holds the part's documents of a split in the source's order, each followed by the separator, so a
shard always begins and ends at a document boundary and the concatenation of a split's shards is one stream. The
separator's id occurs nowhere else (a separator spelled out in a text is encoded as ordinary characters), so boundaries
can be recovered from the ids alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from lmu_scaling.errors import CorpusError, TokensError
from lmu_scaling.jobs import Folder, job
from lmu_scaling.runtime import atomic_write, read_json, write_json
from lmu_scaling.sections import Split, Tokens
from lmu_scaling.tokens.part_files import SignatureFiles, damage_is_explained, part_files
from lmu_scaling.tokens.split import SPLITS, split_of, totals

DTYPE = "<u2"
ITEM = 2
# Half a million tokens stay in the processor's cache while they are hashed, written and counted.
COPY = 1 << 19


def counts_name(part: int) -> str:
    """How often each id occurs, [split, id]; needed for the index only."""
    return f"{part:05d}.counts.npy"


@job
def shard(
    split: Split, tokens: Tokens, selection: Folder, part_folder: Folder, part: int, out: Folder
) -> dict[str, Any]:
    """Write the shards of one part: the documents that are kept, split by content hash.

    Args:
        split: shares of train, validation and test, as JSON
        tokens: section `tokens` of the configuration, as JSON
        selection: folder with drops.npy and selection.json
        part_folder: folder with the parts' files
        part: number of the part, from 0
        out: folder for the shards
    """
    files = part_files(part_folder, part)
    place = read_json(selection / "selection.json", "parts")["parts"][part]
    path = selection / "drops.npy"
    with damage_is_explained(path):
        drops = np.load(path, mmap_mode="r")[place["first"] : place["first"] + place["documents"]]
    signatures = SignatureFiles([files["signatures"]])
    hashes, lengths, sizes = (signatures.all(name) for name in ("hash", "tokens", "bytes"))
    with damage_is_explained(files["tokens"]):
        written = files["tokens"].stat().st_size
    if len(drops) != len(lengths) or lengths.sum(dtype=np.int64) * ITEM != written:
        raise CorpusError("the part does not match the selection", str(files["tokens"]), "run the rule encode again")
    target = np.where(np.asarray(drops) == 0, split_of(hashes, split), len(SPLITS))
    counts = np.zeros((len(SPLITS), tokens.vocab), np.int64)
    facts: list[dict[str, Any]] = []
    for i, name in enumerate(SPLITS):
        path = out / f"{part:05d}.{name}.bin"
        sha256 = _write_shard(path, files["tokens"], _runs(lengths, target == i), counts[i])
        facts.append({"split": name, "file": path.name, "sha256": sha256, **totals(target == i, lengths, sizes)})
    with atomic_write(out / counts_name(part), "wb") as file:
        np.save(file, counts.astype(np.uint32))
    write_json(out / f"{part:05d}.json", {"part": part, "vocab": tokens.vocab, "shards": facts})
    hashed = {str(out / fact["file"]): fact["sha256"] for fact in facts}
    return {fact["split"]: fact["tokens"] for fact in facts} | {"sha256_of": hashed}


def _write_shard(path: Path, source: Path, runs: list[tuple[int, int]], counts: np.ndarray) -> str:
    """Copy token ranges to a shard, count its ids, read it back once to verify it; returns its sha256."""
    sha256, seen = hashlib.sha256(), xxhash.xxh3_128()
    with atomic_write(path, "wb") as file:
        for data in _pieces(source, runs):
            sha256.update(data)
            seen.update(data)
            file.write(data)
            counts += _count(np.frombuffer(data, DTYPE), len(counts), path)
    again = xxhash.xxh3_128()  # enough against a faulty disk, and twenty times as fast as sha256
    for data in _pieces(path, [(0, path.stat().st_size // ITEM)]):
        again.update(data)
    if again.digest() != seen.digest():
        raise TokensError("what was read back is not what was written", str(path), "check the disk and run again")
    return sha256.hexdigest()


def _pieces(source: Path, runs: list[tuple[int, int]]) -> Iterator[memoryview]:
    """The token ranges `runs` of a file end to end, COPY tokens at a time; a piece is valid until the next one."""
    # Read, not memory-mapped: mapped pages would count as this job's memory and grow with the part.
    buffer, held = memoryview(bytearray(COPY * ITEM)), 0
    with open(source, "rb", buffering=0) as file:
        for start, end in runs:
            at, stop = start * ITEM, end * ITEM
            while at < stop:
                got = os.preadv(file.fileno(), [buffer[held : held + stop - at]], at)
                if not got:
                    raise TokensError("a file ends too early", str(source), "run the rules that make it again")
                at, held = at + got, held + got
                if held == len(buffer):
                    yield buffer
                    held = 0
    if held:
        yield buffer[:held]


def _count(ids: np.ndarray, vocab: int, path: Path) -> np.ndarray:
    found = np.bincount(ids, minlength=vocab)
    if len(found) > vocab:
        raise TokensError(f"id {len(found) - 1} is outside the vocabulary", str(path), "run the rule encode again")
    return found


def _runs(lengths: np.ndarray, chosen: np.ndarray) -> list[tuple[int, int]]:
    """Token ranges of consecutive chosen documents: few and long, since most documents are for training."""
    edges = np.flatnonzero(np.diff(np.r_[False, chosen, False].astype(np.int8)))
    offsets = np.r_[0, np.cumsum(lengths, dtype=np.int64)]
    return [(int(offsets[a]), int(offsets[b])) for a, b in zip(edges[::2], edges[1::2], strict=True)]
