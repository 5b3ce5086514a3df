"""Which documents are duplicates of an earlier one, at 17 million documents within a few gigabytes.

Exact duplicates share the 128-bit hash of their text. Near duplicates are pairs that agree on a band of their MinHash
signatures and whose whole signatures then agree on at least `threshold` of the values; of every cluster the first
document in the source's order stays. Arrays hold all documents at once (about 60 bytes each, plus 16 per candidate
pair), signatures are read from the parts' files band by band.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.corpus.arrays import whole
from lmu_scaling.corpus.minhash import band_name, bands_and_rows

MIX = np.uint64(0xFF51AFD7ED558CCD)


def near_settings(filters: list[Any]) -> Any | None:
    """The settings of the filter near_duplicates, if the chain has it."""
    return next((item for item in filters if item.name == "near_duplicates"), None)


def exact_duplicates(hashes: np.ndarray) -> np.ndarray:
    """Mask of documents whose hash (n × 2 words) occurred before."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal hashes stay in the source's order
    ordered = hashes[order]
    repeats = np.zeros(len(hashes), bool)
    repeats[order[1:]] = np.all(ordered[1:] == ordered[:-1], axis=1)
    return repeats


def near_duplicates(signatures: list[Path], candidates: np.ndarray, settings: Any) -> np.ndarray:
    """Mask of documents (over all parts, in order) that are near duplicates of an earlier one among `candidates`."""
    bands, rows = bands_and_rows(settings.threshold, settings.permutations)
    pairs = np.zeros((0, 2), np.int64)
    for band in range(bands):
        found = _bucket_pairs(_band_keys(signatures, band), candidates)
        pairs = np.unique(np.concatenate([pairs, found]), axis=0)
    agreeing = np.zeros(len(pairs), np.int32)
    for band in range(bands):
        agreeing += _agreement(signatures, band, rows, pairs)
    alike = pairs[agreeing >= settings.threshold * bands * rows]
    first = _first_of_cluster(len(candidates), alike)
    return candidates & (first != np.arange(len(candidates)))


def _bands(signatures: list[Path], band: int) -> Iterator[np.ndarray]:
    for path in signatures:
        with whole(path), np.load(path) as arrays:
            values = arrays[band_name(band)]
        yield values


def _band_keys(signatures: list[Path], band: int) -> np.ndarray:
    """One 64-bit key per document: equal keys, equal band."""
    keys = []
    with np.errstate(over="ignore"):
        for values in _bands(signatures, band):
            key = np.full(len(values), band, np.uint64)
            for column in values.T:
                key = (key ^ column.astype(np.uint64)) * MIX
                key ^= key >> np.uint64(32)
            keys.append(key)
    return np.concatenate(keys)


def _bucket_pairs(keys: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Each document of a bucket with the bucket's first and with its predecessor."""
    chosen = np.flatnonzero(candidates)
    order = chosen[np.argsort(keys[chosen], kind="stable")]
    ordered = keys[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    starts = np.maximum.accumulate(np.where(np.r_[True, ordered[1:] != ordered[:-1]], np.arange(len(order)), 0))
    neighbours = np.stack([order[same - 1], order[same]], axis=1)
    with_first = np.stack([order[starts[same]], order[same]], axis=1)
    return np.unique(np.concatenate([neighbours, with_first]), axis=0)


def _agreement(signatures: list[Path], band: int, rows: int, pairs: np.ndarray) -> np.ndarray:
    """In how many values of a band the two documents of each pair agree."""
    left, right = (np.zeros((len(pairs), rows), np.uint32) for _ in range(2))
    start = 0
    for values in _bands(signatures, band):
        for side, column in ((left, pairs[:, 0]), (right, pairs[:, 1])):
            here = np.flatnonzero((column >= start) & (column < start + len(values)))
            side[here] = values[column[here] - start]
        start += len(values)
    return (left == right).sum(axis=1, dtype=np.int32)


def _first_of_cluster(n: int, pairs: np.ndarray) -> np.ndarray:
    """For each document the smallest index it is connected to."""
    label = np.arange(n)
    while len(pairs):
        low = np.minimum(label[pairs[:, 0]], label[pairs[:, 1]])
        before = label.copy()
        np.minimum.at(label, pairs[:, 0], low)
        np.minimum.at(label, pairs[:, 1], low)
        label = label[label]
        if np.array_equal(label, before):
            break
    return label
