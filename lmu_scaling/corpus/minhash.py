"""Near duplicates by MinHash signatures (Broder 1997) and banding, for 17 million documents within a few gigabytes.

A document is the set of its runs of `shingle` words (see shingles.py). The share of permutations on which two documents
have the same minimum estimates the Jaccard similarity of their sets. Two documents are compared when all `rows` values
of at least one of the `bands` agree, which happens with probability 1 - (1 - s^rows)^bands at similarity s; bands and
rows are chosen so that this curve rises just below the threshold. A pair is a near duplicate if at least `threshold` of
the values of the whole signatures agree; of every cluster the first document in the source's order is kept.

Arrays hold all documents at once (about 60 bytes each, plus 16 per candidate pair); signatures are read band by band.
"""

from __future__ import annotations

import numpy as np

from lmu_scaling.corpus.filters import Signatures
from lmu_scaling.corpus.shingles import in_pieces, shingle_hashes

SEED = 1
MIX = np.uint64(0xFF51AFD7ED558CCD)


def bands_and_rows(threshold: float, permutations: int, missed: float = 0.05) -> tuple[int, int]:
    """The most selective banding that still compares all but `missed` of the pairs at the threshold."""
    best = (permutations, 1)
    for rows in range(1, permutations + 1):
        bands = permutations // rows
        if (1 - threshold**rows) ** bands <= missed:
            best = (bands, rows)
    return best


def band_name(band: int) -> str:
    return f"minhash_{band:03d}"


def minhash_signatures(texts: list[str], threshold: float, permutations: int, shingle: int) -> dict[str, np.ndarray]:
    """One array per band, so that duplicates can be found with one band in memory."""
    from datasketch import MinHash

    bands, rows = bands_and_rows(threshold, permutations)
    empty = MinHash(num_perm=bands * rows, seed=SEED, hashfunc=int, scheme="affine32")
    values = np.zeros((len(texts), bands * rows), np.uint32)
    done = 0
    for some in in_pieces(texts):
        for hashes in shingle_hashes(some, shingle):
            signature = empty.copy()
            signature.update_batch(hashes.tolist())
            values[done] = signature.hashvalues
            done += 1
    return {band_name(band): values[:, band * rows : (band + 1) * rows] for band in range(bands)}


def near_duplicates(signatures: Signatures, candidates: np.ndarray, threshold: float, permutations: int) -> np.ndarray:
    """Mask of the documents that are near duplicates of an earlier one among `candidates`."""
    bands, rows = bands_and_rows(threshold, permutations)
    pairs = np.zeros((0, 2), np.int64)
    for band in range(bands):
        found = _bucket_pairs(_band_keys(signatures, band), candidates)
        pairs = np.unique(np.concatenate([pairs, found]), axis=0)
    agreeing = np.zeros(len(pairs), np.int32)
    for band in range(bands):
        agreeing += _agreement(signatures, band, rows, pairs)
    alike = pairs[agreeing >= threshold * bands * rows]
    first = _first_of_cluster(len(candidates), alike)
    return candidates & (first != np.arange(len(candidates)))


def _band_keys(signatures: Signatures, band: int) -> np.ndarray:
    """One 64-bit key per document: equal keys mean equal bands."""
    keys = []
    with np.errstate(over="ignore"):
        for values in signatures.by_part(band_name(band)):
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


def _agreement(signatures: Signatures, band: int, rows: int, pairs: np.ndarray) -> np.ndarray:
    """In how many values of a band the two documents of each pair agree."""
    left, right = (np.zeros((len(pairs), rows), np.uint32) for _ in range(2))
    start = 0
    for values in signatures.by_part(band_name(band)):
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
