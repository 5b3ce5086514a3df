"""Documents as sets of word runs ("shingles"), hashed a megabyte at a time with NumPy.

A word is a run of letters, digits and underscores, lower-cased; characters beyond ASCII belong to words, except for
typographic punctuation (U+2000 … U+203F). A word's hash is the sum of random numbers drawn for each (byte, place in
the word) (simple tabulation hashing). A shingle's hash is a polynomial in the hashes of its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

# Of longer documents only the beginning is compared [characters].
LONGEST = 1 << 20
# Hashing takes some forty bytes per character of the texts that are hashed at once.
CHARACTERS = 1 << 20
PLACES = 64
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
IS_WORD = np.array([chr(b).isalnum() or b == ord("_") or b >= 0x80 for b in range(256)])


def _random_table(size: int) -> np.ndarray:
    """Random numbers by splitmix64, which do not depend on the version of any library."""
    x = np.arange(1, size + 1, dtype=np.uint64) * MULTIPLIER
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


TABLE = _random_table(PLACES * 256)


def shingle_hashes(texts: list[str], shingle: int) -> list[np.ndarray]:
    """Per document the 32-bit hashes of its runs of `shingle` words, repetitions included; a shorter one is one run."""
    return [(runs >> np.uint64(32)).astype(np.uint32) for runs in long_shingle_hashes(texts, shingle)]


def long_shingle_hashes(texts: list[str], shingle: int) -> list[np.ndarray]:
    """The same with 64 bits: for sets so large that hashes of 32 bits would coincide by chance."""
    words, first = _word_hashes(texts)
    runs = _runs(words, shingle)
    out = []
    for start, end in pairwise(first):
        if end - start >= shingle:
            out.append(runs[start : end - shingle + 1])
        else:
            out.append(_runs(words[start:end], max(end - start, 1)) if end > start else np.zeros(1, np.uint64))
    return out


def in_pieces(texts: list[str], characters: int = CHARACTERS) -> Iterator[list[str]]:
    """The texts in lists of at least so many characters."""
    start = held = 0
    for end, text in enumerate(texts, 1):
        held += len(text)
        if held >= characters or end == len(texts):
            yield texts[start:end]
            start, held = end, 0


def _runs(words: np.ndarray, length: int) -> np.ndarray:
    count = max(len(words) - length + 1, 0)
    runs = np.zeros(count, np.uint64)
    for i in range(length):
        runs *= MULTIPLIER
        runs += words[i : i + count]
    return runs


def _word_hashes(texts: list[str]) -> tuple[np.ndarray, list[int]]:
    """Hashes of all words of all texts, and where each text's words begin (len + 1 numbers)."""
    pieces = [text[:LONGEST].lower().encode() for text in texts]
    data = np.frombuffer(b"\n".join(pieces), np.uint8)
    is_word = IS_WORD[data]
    # UTF-8 writes U+2000 … U+203F as E2 80 xx.
    dash = np.flatnonzero((data[:-2] == 0xE2) & (data[1:-1] == 0x80))
    for i in range(3):
        is_word[dash + i] = False
    edges = np.flatnonzero(np.diff(is_word, prepend=False, append=False))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    begins = np.cumsum([0] + [len(piece) + 1 for piece in pieces])
    first = np.searchsorted(starts, begins).tolist()
    if not len(starts):
        return np.zeros(0, np.uint64), first
    offsets = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(offsets, lengths)
    values = TABLE[(place % PLACES) * 256 + data[is_word]]
    return np.add.reduceat(values, offsets), first
