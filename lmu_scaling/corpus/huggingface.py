"""Hugging Face data sets as a source, streamed through `datasets`: no Arrow copy is written to disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmu_scaling.corpus.documents import Block
from lmu_scaling.corpus.members import Member
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


def list_members(options: dict[str, Any]) -> list[Member]:
    """One member per shard of the data set; `datasets` knows their number without reading them."""
    name = options["repository"]
    try:
        shards = max(int(_open(options).num_shards), 1)
    except Exception as error:
        raise CorpusError(
            f"the data set cannot be opened: {error}", name, "check the name, the network and the catalogue's entry"
        ) from error
    return [
        Member(f"{name}[{i}]", "huggingface", size=1, options=options | {"shard": i, "shards": shards})
        for i in range(shards)
    ]


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
        # `datasets` lets through whatever its readers and the network raise; a shard cut short must not pass unnoticed.
        raise CorpusError(
            f"the stream broke off after row {row}: {error}", name, "run again; check the network"
        ) from error
