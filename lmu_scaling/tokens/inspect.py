"""`tokens-inspect`: show what a folder of shards holds, decode a window of it, verify the checksums."""

from __future__ import annotations

from typing import Any

from lmu_scaling.errors import TokensError
from lmu_scaling.jobs import Folder, job
from lmu_scaling.runtime import read_json
from lmu_scaling.tokens.split import SPLITS
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.tokens.tokenizer import Tokenizer

SHOWN = ("encoding", "tokenizer_sha256", "source", "filters")  # in addition to what TokenStore needs


@job
def tokens_inspect(
    folder: Folder, /, split: str = "train", window: int = 0, length: int = 64, verify: bool = True
) -> dict[str, Any]:
    """Show and verify a folder of shards, and decode a window of it.

    Args:
        folder: results/<experiment>/tokens
        split: train, validation or test
        window: number of the window to decode
        length: tokens to decode
        verify: compare the checksums of all shards
    """
    read_json(folder / "index.json", *SHOWN)
    stores = {name: TokenStore(folder, name, verify=verify) for name in SPLITS}
    index = stores[split].index
    print(f"{folder}: {index['source']['source']}, {len(index['shards'])} shards, {index['dtype']}")
    print(f"tokenizer {index['encoding']}, {index['vocab']} tokens, separator {index['eot']}")
    print(f"digest {index['digest']}" + (", checksums of all shards agree" if verify else ""))
    print(f"{'split':<12}{'documents':>12}{'tokens':>16}{'bytes':>16}{'bytes/token':>13}{'unigram [nats]':>16}")
    for name, facts in index["splits"].items():
        ratio = facts["bytes"] / max(facts["tokens"], 1)
        counts = f"{facts['documents']:>12,}{facts['tokens']:>16,}{facts['bytes']:>16,}"
        print(f"{name:<12}{counts}{ratio:>13.3f}{facts['unigram_loss']:>16.4f}")
    for warning in index.get("warnings") or []:
        print(f"note: {warning}")
    print(f"{'filter':<20}{'dropped documents':>20}{'kept documents':>20}{'kept bytes':>16}")
    for row in index["filters"]:
        counts = f"{row['dropped_documents']:>20,}{row['kept_documents']:>20,}{row['kept_bytes']:>16,}"
        print(f"{row['filter']:<20}{counts}")
    for row in index.get("overlap") or []:
        shared = (
            f"at most {row['largest_share']:.1%} of a document, {row['documents_above']:,} above {row['bound']:.0%}"
        )
        print(f"{row['split']} in training, {row['when']} filtering: {shared}")
    text = decode_window(stores[split], window, length)
    print(f"--- {split}, window {window} of {length} tokens")
    print(text)
    return {"digest": index["digest"], "verified": verify}


def decode_window(store: TokenStore, window: int, length: int) -> str:
    """The text of one window; its separators show as `<|endoftext|>`."""
    tokenizer = Tokenizer(store.vocab, "tiktoken", store.index["encoding"])
    if tokenizer.sha256 != store.index["tokenizer_sha256"]:
        raise TokensError(
            "the shards were made by another tokenizer",
            str(store.directory),
            "install the versions in requirements.lock",
        )
    if not 0 <= window < store.windows(length):
        raise TokensError(
            f"no window {window}; there are {store.windows(length)}", str(store.directory), "choose a smaller number"
        )
    return tokenizer.decode(store.slice(window * length, (window + 1) * length))
