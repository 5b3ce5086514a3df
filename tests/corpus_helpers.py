"""Shared by the tests of stages corpus and tokens: settings, small sources in every format, and the stages in a row."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import zstandard

from lmu_scaling import paths
from lmu_scaling.corpus import sources
from lmu_scaling.corpus.filters import surveyed
from lmu_scaling.sections import Corpus, Split, Tokens
from lmu_scaling.tokens import deduplicate as selection
from lmu_scaling.tokens import encode as parts
from lmu_scaling.tokens import index, shards
from lmu_scaling.tokens import survey as surveys

CATALOG = paths.DATASETS


def corpus_settings(**changes) -> Corpus:
    values = {"source": "local", "split": Split(train=0.8, validation=0.1, test=0.1)}
    return Corpus(**(values | changes))


def token_settings(**changes) -> Tokens:
    return Tokens(**changes)


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


# The jobs of both stages, with the settings they take from the configuration.


def fetch(settings: Corpus, catalog: Path, data: Path, out: Path) -> None:
    sources.fetch(settings.source, settings.path, settings.sample, data, out, catalog)


def survey_part(settings: Corpus, source: Path, part: int, out: Path) -> None:
    surveys.survey(settings.filters, settings.parts, source, part, out)


def encode_part(settings: Corpus, tokens: Tokens, source: Path, part: int, out: Path) -> None:
    parts.encode(settings.filters, settings.parts, settings.on_bad_document, tokens, source, part, out)


def deduplicate(settings: Corpus, source: Path, part_folder: Path, out: Path) -> None:
    chosen = (settings.filters, settings.parts, settings.split, settings.target_tokens, settings.max_bad_share)
    selection.deduplicate(*chosen, source, part_folder, out)


def write_shards(settings: Corpus, tokens: Tokens, folder: Path, part_folder: Path, part: int, out: Path) -> None:
    shards.shard(settings.split, tokens, folder, part_folder, part, out)


def write_index(settings: Corpus, tokens: Tokens, folder: Path, out: Path) -> None:
    index.index(settings.parts, tokens, folder, out)


def run_stages(root: Path, settings, tokens=None, catalog: Path = CATALOG) -> Path:
    """All jobs of both stages, in order; returns the folder with the shards."""
    tokens = tokens or token_settings()
    source, folder = root / "corpus" / "source.json", root / "tokens"
    fetch(settings, catalog, root / "data", source)
    for part in range(settings.parts if surveyed(settings.filters) else 0):
        survey_part(settings, source, part, folder / "parts")
    for part in range(settings.parts):
        encode_part(settings, tokens, source, part, folder / "parts")
    deduplicate(settings, source, folder / "parts", folder)
    for part in range(settings.parts):
        write_shards(settings, tokens, folder, folder / "parts", part, folder)
    write_index(settings, tokens, folder, folder / "index.json")
    return folder
