"""Rule `encode`: read one part of the source, apply the per-document filters, encode what is left, and sign it.

Text is encoded here, once, because two decisions need the number of tokens (the filter `token_ratio` and the subsample
to a token target). So only token ids are written, which are smaller than the text and exactly reversible:

    {i:05d}.tokens.bin       uint16, every kept document followed by the separator
    {i:05d}.signatures.npz   per document: hash (2 × uint64), tokens (with separator), bytes; what corpus filters need
    {i:05d}.json             counts (see tally.py); what became of paragraphs, if a filter keeps pieces (see survey.py)

A part is a pure function of the source and the settings; memory holds one batch of a few megabytes.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Literal

import numpy as np
import xxhash

from lmu_scaling.corpus.documents import Block
from lmu_scaling.corpus.filters import CorpusFilter, DocumentFilter, Filter, ordered, surveyed
from lmu_scaling.corpus.members import Member, read_blocks, read_members, share
from lmu_scaling.corpus.repeats import Repeats
from lmu_scaling.jobs import Folder, Input, job
from lmu_scaling.runtime import Progress, atomic_write, write_json
from lmu_scaling.sections import AnyFilter, Tokens
from lmu_scaling.tokens.part_files import part_files
from lmu_scaling.tokens.survey import read_repeats
from lmu_scaling.tokens.tally import Tally
from lmu_scaling.tokens.tokenizer import Tokenizer

# Reading, parsing and encoding evict each other's tables from the processor's caches: batches of 4 MB took 8 % less
# time than batches of 1 MB; 8 MB were no better.
BATCH_CHARACTERS = 1 << 22
# The fast engine is compared with the reference on the first characters of each part, and then on the first document
# of every batch.
PROOF_CHARACTERS = 1 << 17


@job
def encode(
    filters: list[AnyFilter],
    parts: int,
    on_bad_document: Literal["skip", "stop"],
    tokens: Tokens,
    source: Input,
    part: int,
    out: Folder,
) -> dict[str, Any]:
    """Read one part of the corpus, apply the filters to each document, encode what is left.

    Args:
        filters: `corpus.filters`, as JSON
        parts: number of parts
        on_bad_document: skip unreadable documents, or stop
        tokens: section `tokens` of the configuration, as JSON
        source: source.json
        part: number of the part, from 0
        out: folder for the part's files
    """
    mine = share(read_members(source), part, parts)
    tokenizer = Tokenizer(tokens.vocab, tokens.engine, tokens.encoding)
    tally = Tally(stop_on_bad=on_bad_document == "stop")
    chain = ordered(filters)
    repeats = read_repeats(out, part, parts) if surveyed(chain) else None
    encoder = _Encoder(chain, tokenizer, tally, repeats)
    files = part_files(out, part)
    with atomic_write(files["tokens"], "wb") as file:
        for batch in _batches(mine, tally, f"part {part}"):
            file.write(encoder.encode(batch).data)
    with atomic_write(files["signatures"], "wb") as file:
        np.savez(file, allow_pickle=False, **encoder.signatures())
    counts = {"part": part, "members": [m.name for m in mine], "proved_ids": encoder.proved, **tally.counts()}
    counts["pieces"] = repeats.counts if repeats else {}
    write_json(files["counts"], counts)
    return {key: counts[key] for key in ("documents", "kept_documents", "kept_bytes")}


def _batches(members: list[Member], tally: Tally, label: str) -> Iterator[Block]:
    """Blocks joined to batches of about BATCH_CHARACTERS; progress is in bytes of the source."""
    batch, held = Block(), 0
    with Progress(sum(m.size for m in members), label, "B") as bar:
        for member in members:
            for block in read_blocks(member):
                tally.add_bad(block.bad)
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
    """Filters and encodes batches, and collects the signature of each kept document."""

    def __init__(
        self, chain: Sequence[Filter], tokenizer: Tokenizer, tally: Tally, repeats: Repeats | None = None
    ) -> None:
        filters = [item for item in chain if isinstance(item, DocumentFilter)]
        cut = next((i for i, item in enumerate(filters) if item.needs_tokens), len(filters))
        self.before, self.after = filters[:cut], filters[cut:]
        self.comparing = [item for item in chain if isinstance(item, CorpusFilter)]
        self.signed = [self._signed([])]
        self.tokenizer, self.tally, self.repeats = tokenizer, tally, repeats
        # Flat buffers: 24 bytes per document instead of three Python objects.
        self.digests, self.lengths, self.sizes = bytearray(), array("I"), array("I")
        self.batches = self.proved = 0

    def encode(self, batch: Block) -> np.ndarray:
        """The batch's kept documents as ids (uint16), each followed by the separator."""
        self.tally.documents += len(batch.texts)
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
        self, filters: list[DocumentFilter], columns: list[list[Any]], tokens: list[int] | None = None
    ) -> list[list[Any]]:
        """What the filters leave of columns (texts, languages, …); `tokens` counts without separators, if known."""
        columns = [*columns, tokens or [0] * len(columns[0])]
        for item in filters:
            apply = self.repeats.applying(item) if self.repeats and item is surveyed([item]) else item.apply
            texts, results = columns[0], list(map(apply, columns[0], columns[1], columns[-1]))
            dropped = size = 0
            if any(map(operator.is_not, results, texts)):
                for text, result in zip(texts, results, strict=True):
                    if result is not text:
                        dropped += not result
                        size += len(text.encode()) - len((result or "").encode())
                columns = [list(compress(column, results)) for column in (results, *columns[1:])]
            self.tally.add_dropped(item.name, dropped, size)
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
        self.tally.add_kept(len(sizes), sum(sizes))
        self.signed.append(self._signed(texts))

    def _signed(self, texts: list[str]) -> dict[str, np.ndarray]:
        return {name: values for item in self.comparing for name, values in item.sign(texts).items()}

    def signatures(self) -> dict[str, np.ndarray]:
        # Big-endian words of the canonical digest, so that the numbers are the same on every machine.
        words = np.frombuffer(self.digests, ">u8").astype(np.uint64).reshape(-1, 2)
        found: dict[str, np.ndarray] = {"hash": words, "tokens": np.array(self.lengths, np.uint32)}
        found["bytes"] = np.array(self.sizes, np.uint32)
        return found | {name: np.concatenate([batch[name] for batch in self.signed]) for name in self.signed[0]}
