"""The job `export-tokens`: token shards with a data-set card and Croissant metadata (mlcommons.org/croissant/1.0)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from lmu_scaling import __version__
from lmu_scaling.errors import ResultsError
from lmu_scaling.export.card import corpus
from lmu_scaling.jobs import Folder, job
from lmu_scaling.manifests import utc
from lmu_scaling.runtime import atomic_write, byte_size, read_json, sha256_file, write_json

CROISSANT = "http://mlcommons.org/croissant/1.0"
HOME = "https://arxiv.org/abs/2110.02402"
COLUMNS = {"file": "sc:Text", "split": "sc:Text", "tokens": "sc:Integer", "documents": "sc:Integer"}
# The context of Croissant 1.0: these terms are its own, all others are schema.org's.
TERMS = """citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset
jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source subField
transform"""
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{term: f"cr:{term}" for term in TERMS.split()},
}


@job
def export_tokens(tokens: Folder, to: Path) -> None:
    """Export token shards with a data-set card and Croissant metadata.

    Args:
        tokens: results/<experiment>/tokens
        to: folder to write; shards are linked into it, or copied to another disk
    """
    index = read_json(tokens / "index.json", "shards", "splits", "vocab", "eot")
    results = tokens.resolve().parent
    config = read_json(results / "config.json", "corpus") if (results / "config.json").is_file() else {"corpus": {}}
    source = corpus(str(config["corpus"].get("source", "unknown")))
    to.mkdir(parents=True, exist_ok=True)
    for shard in index["shards"]:
        place(tokens / shard["file"], to / shard["file"], shard["sha256"])
    shutil.copy2(tokens / "index.json", to / "index.json")
    write_json(to / "croissant.json", croissant(results.name, index, source, to))
    with atomic_write(to / "README.md") as file:
        file.write(card(results.name, index, source))
    size = sum((to / shard["file"]).stat().st_size for shard in index["shards"])
    print(f"{to}: {len(index['shards'])} shards, {byte_size(size)}", flush=True)


def place(source: Path, target: Path, sha256: str) -> None:
    """Link or copy a shard whose checksum is the index's."""
    found = sha256_file(source) if source.is_file() else "no file"
    if found != sha256:
        raise ResultsError(
            f"this shard is not the one in the index: {found} instead of {sha256}",
            str(source),
            "run the workflow again, which makes the shards anew",
        )
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copyfile(source, target)


def croissant(experiment: str, index: dict[str, Any], source: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One file object per shard; the table of shards is a record set."""
    files = [
        {
            "@type": "cr:FileObject",
            "@id": shard["file"],
            "name": shard["file"],
            "description": f"Tokens of the split {shard['split']}: flat little-endian uint16, no header",
            "contentUrl": shard["file"],
            "contentSize": f"{(folder / shard['file']).stat().st_size} B",
            "encodingFormat": "application/octet-stream",
            "sha256": shard["sha256"],
        }
        for shard in index["shards"]
    ]
    fields = [
        {"@type": "cr:Field", "@id": f"shards/{name}", "name": name, "description": name, "dataType": kind}
        for name, kind in COLUMNS.items()
    ]
    rows = [{f"shards/{name}": shard[name] for name in COLUMNS} for shard in index["shards"]]
    published = utc((folder / "index.json").stat().st_mtime)[:10]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT,
        "name": f"lmu-scaling-{experiment}-tokens",
        "description": _description(index, source),
        "license": str(source["licence"]),
        "url": HOME,
        "citeAs": str(source["citation"]),
        "creator": {"@type": "sc:Organization", "name": "lmu-scaling"},
        "datePublished": published,
        "version": __version__,
        "distribution": files,
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "shards",
                "name": "shards",
                "description": "One row per shard",
                "field": fields,
            }
            | {"data": rows}
        ],
    }


def card(experiment: str, index: dict[str, Any], source: dict[str, Any]) -> str:
    head: dict[str, Any] = {"pretty_name": f"{source['title']}, tokens"}
    head |= {"license": "other", "license_name": str(source["licence"])}
    head |= {"task_categories": ["text-generation"], "tags": ["croissant", "lmu-scaling"]}
    rows = [
        f"| {name} | {facts['tokens']:,} | {facts['documents']:,} | {facts['bytes']:,} |"
        for name, facts in index["splits"].items()
    ]
    return f"""---
{yaml.safe_dump(head, sort_keys=False)}---

# {source["title"]}, as tokens

{_description(index, source)} Made by the experiment `{experiment}` of lmu-scaling.

| split | tokens | documents | bytes of text |
|---|---|---|---|
{chr(10).join(rows)}

Read a shard: `numpy.fromfile("00000.train.bin", "<u2")`. Each document ends with the id {index["eot"]}. `index.json`
has the checksums, `croissant.json` the same for tools.

Licence: {source["licence"]}. Source: {source["citation"]}.
"""


def _description(index: dict[str, Any], source: dict[str, Any]) -> str:
    kind = "GPT-2's byte-pair encoding" if index["vocab"] == 50257 else "the first ranks of GPT-2's byte-pair encoding"
    return f"{source['title']}, filtered, deduplicated and encoded with {kind} ({index['vocab']:,} tokens)."
