"""Hugging Face data sets as a source, streamed through `datasets`: no Arrow copy is written to disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmu_scaling.corpus.documents import Block
from lmu_scaling.errors import CorpusError

BATCH = 256


def _open(options: dict[str, Any]) -> Any:
    import datasets

    return datasets.load_dataset(
        options["repository"],
        options.get("config"),
        data_files=options.get("data_files"),
        revision=options.get("revision"),
        split=options.get("split", "train"),
        streaming=True,
    )


def shard_count(options: dict[str, Any]) -> int:
    """Number of shards of the data set, known without reading them."""
    try:
        return max(int(_open(options).num_shards), 1)
    except Exception as error:
        raise CorpusError(
            f"the data set cannot be opened: {error}",
            options["repository"],
            "check the name, the network and the catalogue's entry",
        ) from error


def stream(name: str, options: dict[str, Any]) -> Iterator[Block]:
    """The documents of one shard."""
    text, language = options.get("text", "text"), options.get("language")
    row = 0
    try:
        rows = _open(options).shard(num_shards=options["shards"], index=options["shard"])
        block = Block()
        for record in rows:
            row += 1
            block.add(record.get(text), record.get(language) if language else None, f"{name}, row {row}")
            if len(block.texts) >= BATCH:
                yield block
                block = Block()
        yield block
    except Exception as error:
        # `datasets` raises many kinds of errors, of its readers and of the network; an incomplete shard is always one.
        raise CorpusError(
            f"the stream broke off after row {row}: {error}", name, "run again; check the network"
        ) from error
