"""One part of the corpus: read its members, apply the per-document filters, encode and sign what remains.

Text is tokenised here, once, because two decisions need the count of tokens (the filter `token_ratio` and the subsample
to a token target). So nothing is written but token ids, smaller than the text and exactly reversible:

    {i:05d}.tokens.bin       uint16, every kept document followed by the separator
    {i:05d}.signatures.npz   per document: hash (2 × uint64), tokens (with separator), bytes; `minhash_*` if asked for
    {i:05d}.json             counts (see accounts.py)

A part is a pure function of the source and the settings; memory holds one batch of a few megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from lmu_scaling.corpus.accounts import Accounts
from lmu_scaling.corpus.documents import Block
from lmu_scaling.corpus.duplicates import near_settings
from lmu_scaling.corpus.filters import NEEDS_TOKENS, Keep, document_filters
from lmu_scaling.corpus.layout import part_files
from lmu_scaling.corpus.members import Member, read_blocks, read_members, share
from lmu_scaling.corpus.minhash import MinHasher
from lmu_scaling.runtime import Progress, atomic_write, write_json
from lmu_scaling.tokens.tokenizer import Tokenizer

# Reading, parsing and encoding each push the others' tables out of the processor's caches: turns of 4 MB took 8 % less
# time than turns of 1 MB, and 8 MB were no better.
BATCH_CHARACTERS = 1 << 22
# The fast engine is compared with the reference on the first characters of each part, and then on the first document
# of every batch.
PROOF_CHARACTERS = 1 << 17


def filter_part(settings: Any, tokens: Any, source: Path, part: int, out: Path) -> dict[str, Any]:
    """Write part `part` of `settings.parts` into the folder `out`.

    `settings` is the section `corpus` of the configuration, `tokens` the section `tokens`, `source` is source.json.
    """
    mine = share(read_members(source), part, settings.parts)
    tokenizer = Tokenizer(tokens.vocab, tokens.engine, tokens.encoding)
    accounts = Accounts(stop_on_bad=settings.on_bad_document == "stop")
    encoder = _Encoder(document_filters(settings.filters), tokenizer, near_settings(settings.filters), accounts)
    files = part_files(out, part)
    with atomic_write(files["tokens"], "wb") as file:
        for batch in _batches(mine, accounts, f"part {part}"):
            file.write(encoder.encode(batch).data)
    with atomic_write(files["signatures"], "wb") as file:
        np.savez(file, allow_pickle=False, **encoder.signatures())
    counts = {"part": part, "members": [m.name for m in mine], "proved_ids": encoder.proved, **accounts.as_dict()}
    write_json(files["counts"], counts)
    return {key: counts[key] for key in ("documents", "kept_documents", "kept_bytes")}


def _batches(members: list[Member], accounts: Accounts, label: str) -> Iterator[Block]:
    """Blocks joined to batches of about BATCH_CHARACTERS; progress is in bytes of the source."""
    batch, held = Block(), 0
    with Progress(sum(m.size for m in members), label, "B") as bar:
        for member in members:
            for block in read_blocks(member):
                accounts.note_bad(block.bad)
                batch.texts += block.texts
                batch.languages += block.languages
                held += sum(map(len, block.texts))
                if held >= BATCH_CHARACTERS:
                    yield batch
                    batch, held = Block(), 0
            bar.update(member.size)
    if batch.texts:
        yield batch


class _Encoder:
    """Filters and encodes batches, and remembers each kept document's signature."""

    def __init__(self, filters: list[tuple[str, Keep]], tokenizer: Tokenizer, near: Any, accounts: Accounts) -> None:
        needing = [i for i, (name, _) in enumerate(filters) if name in NEEDS_TOKENS]
        cut = needing[0] if needing else len(filters)
        self.before, self.after = filters[:cut], filters[cut:]
        self.tokenizer, self.accounts = tokenizer, accounts
        self.hasher = MinHasher(near) if near is not None else None
        # Flat buffers: 24 bytes per document instead of three Python objects.
        self.digests, self.lengths, self.sizes = bytearray(), array("I"), array("I")
        self.batches = self.proved = 0

    def encode(self, batch: Block) -> np.ndarray:
        """The batch's kept documents as ids (uint16), each followed by the separator."""
        self.accounts.documents += len(batch.texts)
        texts, languages = self._apply(self.before, [batch.texts, batch.languages])
        self._prove(texts)
        ids, offsets = self.tokenizer.encode_documents(texts)
        lengths = np.diff(offsets).tolist()
        if self.after:
            places = list(range(len(texts)))
            texts, _, places = self._apply(self.after, [texts, languages, places], [n - 1 for n in lengths])
            ids = np.concatenate([ids[:0], *(ids[offsets[i] : offsets[i + 1]] for i in places)])
            lengths = [lengths[i] for i in places]
        self._sign(texts, lengths)
        return ids

    def _apply(
        self, filters: list[tuple[str, Keep]], columns: list[list[Any]], tokens: list[int] | None = None
    ) -> list[list[Any]]:
        """What the filters leave of columns (texts, languages, …); `tokens` counts without separators, if known."""
        columns = [*columns, tokens or [0] * len(columns[0])]
        for name, keep in filters:
            texts, languages, counts = columns[0], columns[1], columns[-1]
            mask = [keep(text, language, n) for text, language, n in zip(texts, languages, counts, strict=True)]
            lost = [] if all(mask) else [len(text.encode()) for text, kept in zip(texts, mask, strict=True) if not kept]
            if lost:
                columns = [list(compress(column, mask)) for column in columns]
            self.accounts.bytes += sum(lost)
            self.accounts.note_dropped(name, len(lost), sum(lost))
        return columns[:-1]

    def _prove(self, texts: list[str]) -> None:
        if self.batches == 0:
            sample, held = [], 0
            for text in texts:
                sample.append(text[: PROOF_CHARACTERS - held])
                held += len(sample[-1])
                if held >= PROOF_CHARACTERS:
                    break
        else:
            sample = [text[:PROOF_CHARACTERS] for text in texts[:1]]
        self.proved += self.tokenizer.prove(sample, "corpus part, sample of its documents")
        self.batches += 1

    def _sign(self, texts: list[str], lengths: list[int]) -> None:
        # Cheap only after encoding: the engine leaves the UTF-8 form in the string, and `encode` copies it.
        sizes = []
        for text in texts:
            data = text.encode()
            sizes.append(len(data))
            self.digests += xxhash.xxh3_128_digest(data)
        self.sizes.extend(sizes)
        self.lengths.extend(lengths)
        self.accounts.kept_documents += len(sizes)
        self.accounts.kept_bytes += sum(sizes)
        self.accounts.bytes += sum(sizes)
        if self.hasher is not None:
            self.hasher.add(texts)

    def signatures(self) -> dict[str, np.ndarray]:
        # Big-endian words of the canonical digest, so that the numbers are the same on every machine.
        words = np.frombuffer(self.digests, ">u8").astype(np.uint64).reshape(-1, 2)
        out: dict[str, Any] = {
            "hash": words,
            "tokens": np.array(self.lengths, np.uint32),
            "bytes": np.array(self.sizes, np.uint32),
        }
        return out | (self.hasher.signatures() if self.hasher is not None else {})
