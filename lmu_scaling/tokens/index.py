"""Rule `index`: tokens/index.json lists all shards in order with hashes and counts, and the unigram cross-entropy.

`digest` identifies the data: it hashes the tokenizer and the token stream of each split, so it does not depend on how
the corpus was cut into parts.

The unigram cross-entropy is that of add-one-smoothed token frequencies of the training split, in nats per token: a
model with a higher loss has learnt nothing from context.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.errors import TokensError
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.runtime import canonical_json, read_json, sha256_bytes, write_json
from lmu_scaling.sections import Tokens
from lmu_scaling.tokens.part_files import damage_is_explained
from lmu_scaling.tokens.shards import DTYPE, counts_name
from lmu_scaling.tokens.split import SPLITS
from lmu_scaling.tokens.tokenizer import SEPARATOR, check_settings, mapping_sha256

READ = 1 << 20
# With fewer documents a standard error over documents is meaningless; the index then has a warning.
FEW_DOCUMENTS = 10


@job
def index(parts: int, tokens: Tokens, folder: Folder, out: Output) -> dict[str, Any]:
    """Merge the parts into one stream: write the index of all shards.

    Args:
        parts: number of parts
        tokens: section `tokens` of the configuration, as JSON
        folder: folder with the shards and selection.json
        out: index.json
    """
    shards = []
    for part in range(parts):
        facts = read_json(folder / f"{part:05d}.json", "shards")
        shards += [fact | {"part": part} for fact in facts["shards"]]
    splits = {name: _split_facts(shards, name) for name in SPLITS}
    _refuse_empty(splits, folder)
    check_settings(tokens.encoding, tokens.vocab, tokens.engine)
    tokenizer_sha256 = mapping_sha256(tokens.vocab)
    counts = np.zeros((len(SPLITS), tokens.vocab), np.int64)
    for part in range(parts):
        counts += _counts(folder / counts_name(part), counts.shape, shards[part * len(SPLITS) :])
    for i, name in enumerate(SPLITS):
        splits[name]["sha256"] = _stream_sha256(folder, shards, name)
        splits[name]["unigram_loss"] = cross_entropy(counts[0], counts[i])
    identity = {"tokenizer": tokenizer_sha256, "splits": {name: splits[name]["sha256"] for name in SPLITS}}
    described = read_json(folder / "selection.json", "source", "filters", "overlap", "warnings")
    content = {
        "digest": sha256_bytes(canonical_json(identity).encode()),
        "dtype": DTYPE,
        "vocab": tokens.vocab,
        "eot": tokens.vocab - 1,
        "separator": SEPARATOR,
        "encoding": tokens.encoding,
        "engine": tokens.engine,
        "tokenizer_sha256": tokenizer_sha256,
        "source": described["source"],
        "filters": described["filters"],
        "overlap": described["overlap"],
        "splits": splits,
        "warnings": described["warnings"] + _warnings(splits),
        "shards": shards,
    }
    write_json(out, content)
    return {"digest": content["digest"], **{name: splits[name]["tokens"] for name in SPLITS}}


def _split_facts(shards: list[dict[str, Any]], name: str) -> dict[str, Any]:
    mine = [shard for shard in shards if shard["split"] == name]
    return {key: sum(shard[key] for shard in mine) for key in ("tokens", "documents", "bytes")}


def _refuse_empty(splits: dict[str, Any], folder: Path) -> None:
    empty = [name for name, facts in splits.items() if not facts["documents"]]
    if empty:
        counts = ", ".join(f"{name} {facts['documents']}" for name, facts in splits.items())
        raise TokensError(
            f"split {' and '.join(empty)} holds no document (documents: {counts})",
            str(folder),
            "give it a larger share in corpus.split, or use a larger corpus",
        )


def _warnings(splits: dict[str, Any]) -> list[str]:
    return [
        f"split {name} holds only {facts['documents']} documents: its loss depends on which ones they are"
        for name, facts in splits.items()
        if facts["documents"] < FEW_DOCUMENTS
    ]


def _counts(path: Path, shape: tuple[int, ...], shards: list[dict[str, Any]]) -> np.ndarray:
    """How often each id occurs in a part, whose shards come first in `shards`; checked against their tokens."""
    with damage_is_explained(path):
        counts = np.load(path).astype(np.int64).reshape(shape)
        if counts.sum(axis=1).tolist() != [shard["tokens"] for shard in shards[: len(SPLITS)]]:
            raise ValueError("it does not add up to the tokens of the shards")
    return counts


def _stream_sha256(folder: Path, shards: list[dict[str, Any]], split: str) -> str:
    """The sha256 of a split's shards end to end, read from disk; each shard's own sha256 is checked."""
    stream = hashlib.sha256()
    for shard in (shard for shard in shards if shard["split"] == split):
        path, own = folder / shard["file"], hashlib.sha256()
        with damage_is_explained(path), open(path, "rb") as file:
            while data := file.read(READ):
                stream.update(data)
                own.update(data)
        if own.hexdigest() != shard["sha256"]:
            raise TokensError(
                f"a shard is damaged: sha256 {own.hexdigest()} instead of {shard['sha256']}",
                str(path),
                f"restore it from a copy, or make it again: snakemake --cores all --forcerun {path}",
            )
    return stream.hexdigest()


def cross_entropy(train: np.ndarray, other: np.ndarray) -> float:
    """Nats per token of `other` under the smoothed frequencies of `train`."""
    probability = (train + 1) / (train.sum() + len(train))
    return float(-(other * np.log(probability)).sum() / other.sum())
