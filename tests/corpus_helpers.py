"""Shared by the tests of stages corpus and tokens: settings, small sources in every format, and the stages in a row."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import zstandard

from lmu_scaling.corpus.decide import deduplicate
from lmu_scaling.corpus.parts import filter_part
from lmu_scaling.corpus.sources import fetch
from lmu_scaling.tokens.manifest import write_manifest
from lmu_scaling.tokens.shards import tokenise_part

CATALOG = Path(__file__).resolve().parents[1] / "workflow" / "catalog" / "datasets.yaml"


def corpus_settings(**changes):
    shares = SimpleNamespace(train=0.8, validation=0.1, test=0.1)
    values = {"source": "local", "path": None, "parts": 1, "filters": [], "target_tokens": None, "split": shares}
    values |= {"on_bad_document": "skip", "max_bad_share": 0.001}
    return SimpleNamespace(**(values | changes))


def token_settings(**changes):
    return SimpleNamespace(**({"encoding": "gpt2", "vocab": 50257, "engine": "tiktoken"} | changes))


def json_lines(records: Iterable) -> bytes:
    """Records become JSON lines; strings become documents, bytes are taken as they are."""
    lines = []
    for record in records:
        record = {"text": record, "meta": {"lang": "en"}} if isinstance(record, str) else record
        lines.append(record if isinstance(record, bytes) else json.dumps(record).encode())
    return b"".join(line + b"\n" for line in lines)


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(3).compress(data)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def words(seed: int, count: int = 60) -> str:
    """Prose of sorts: `count` words drawn by a small generator from syllables, different for every seed."""
    state, out = seed * 2654435761 + 12345, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append("".join("taloremisunek"[(state >> s) % 12 :][:2] for s in (20, 31, 42))[: 2 + (state >> 55) % 5])
    return " ".join(out)


def run_stages(root: Path, settings, tokens=None, catalog: Path = CATALOG) -> Path:
    """All verbs of both stages, in order; returns the folder with the shards."""
    tokens = tokens or token_settings()
    source, parts, shards = root / "corpus" / "source.json", root / "corpus" / "parts", root / "tokens"
    fetch(settings, catalog, root / "data", source)
    for part in range(settings.parts):
        filter_part(settings, tokens, source, part, parts)
    deduplicate(settings, source, parts, root / "corpus")
    for part in range(settings.parts):
        tokenise_part(settings, tokens, root / "corpus", parts, part, shards)
    write_manifest(settings, tokens, root / "corpus", shards, shards / "manifest.json")
    return shards
