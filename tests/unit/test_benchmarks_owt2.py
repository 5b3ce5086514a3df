"""The synthetic OpenWebText2: the same bytes from the same seed, and the statistics its docstring states."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import zstandard

from benchmarks.owt2 import make, rare_word
from lmu_scaling.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("owt2") / "a.tar"
    make(out, megabytes=2, members=2, seed=0)
    return out


def documents(archive: Path) -> list[str]:
    found = []
    with tarfile.open(archive) as tar:
        for member in tar:
            packed = io.BytesIO(tar.extractfile(member).read())  # type: ignore[union-attr]
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8"):
                text = json.loads(line)["text"]
                found.append("\n\n".join(text) if isinstance(text, list) else text)
    return found


def test_the_seed_decides_every_byte(archive: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 0), ("other", 1)):
        make(tmp_path / name, megabytes=2, members=2, seed=seed)
    assert (tmp_path / "same").read_bytes() == archive.read_bytes() != (tmp_path / "other").read_bytes()


def test_the_statistics_are_those_of_web_text(archive: Path) -> None:
    texts = documents(archive)
    size = sum(len(text.encode()) for text in texts)
    ids, _ = Tokenizer().encode_batch(texts)
    assert 4.3 < size / len(ids) < 4.7
    assert 2.2 < size / archive.stat().st_size < 2.7
    assert 3000 < size / len(texts) < 5000
    assert 0.5 < np.mean([not text.isascii() for text in texts]) < 0.9
    assert 0.02 < 1 - len({*texts}) / len(texts) < 0.05  # exact copies


def test_the_vocabulary_keeps_growing(archive: Path) -> None:
    words = " ".join(documents(archive)).split()
    half, whole = ({*words[:end]} for end in (len(words) // 2, len(words)))
    assert 1.4 < len(whole) / len(half) < 1.7  # twice the text: 2^0.5 to 2^0.75 times the words


def test_nine_in_ten_rare_words_have_a_spelling_of_their_own() -> None:
    assert len({rare_word(rank) for rank in range(20_000)}) > 18_000
