"""Is it the text that the catalogue describes? Documents, bytes and a digest of what the per-document filters leave.

A source that users get by themselves (`text_after` in the catalogue) is compared after its usual filters: differences
that these remove, such as line ends, do not matter. Other filters give another text, which is not compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmu_scaling.corpus.filters import DocumentFilter, Filter
from lmu_scaling.tokens.part_files import SignatureFiles

COMPARED = ("documents", "bytes", "digest")


def text_facts(signatures: SignatureFiles) -> dict[str, Any]:
    """Documents, bytes, and the sha256 of all documents' hashes in order; independent of the number of parts."""
    digest = hashlib.sha256()
    for hashes in signatures.by_part("hash"):
        digest.update(hashes.astype(">u8").tobytes())
    sizes = signatures.all("bytes")
    return {"documents": len(sizes), "bytes": int(sizes.sum(dtype=np.int64)), "digest": digest.hexdigest()}


def differences(chain: Sequence[Filter], found: dict[str, Any], expected: dict[str, Any] | None) -> list[str]:
    """A warning with both values if the text is not the catalogue's; none if other filters were applied."""
    mine = [item for item in chain if isinstance(item, DocumentFilter)]
    if expected is None or [item.name for item in mine] != [settings["name"] for settings in expected["filters"]]:
        return []
    theirs = [type(item)(**settings) for item, settings in zip(mine, expected["filters"], strict=True)]
    if mine != theirs or found == {key: expected[key] for key in COMPARED}:
        return []
    told = [
        f"{facts['documents']:,} documents, {facts['bytes']:,} bytes, {facts['digest']}" for facts in (found, expected)
    ]
    return [f"after the filters the text is not the catalogue's: {told[0]}; the catalogue says {told[1]}"]
