"""The filter chain: each filter's rule, the order, and the report that accounts for every document and byte."""

import csv
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.corpus.filters import document_filters
from lmu_scaling.errors import ConfigError, CorpusError
from lmu_scaling.runtime import read_json
from tests.corpus_helpers import corpus_settings, json_lines, run_stages, token_settings, words


def item(name, **settings):
    return SimpleNamespace(name=name, **settings)


LANGUAGE = item("language", accept=["en", "de"], missing="keep")
LENGTH = item("length", min_characters=100, max_characters=5000)
UNIQUE = item("unique_words", min_unique=20, min_share=0.0)
RATIO = item("token_ratio", max_tokens_per_character=0.5)
EXACT = item("exact_duplicates")
NEAR = item("near_duplicates", threshold=0.8, permutations=128, shingle=5)


def keep(filter_item):
    return document_filters([filter_item])[0][1]


def test_language_accepts_what_is_listed_and_missing_marks_as_configured():
    assert keep(LANGUAGE)("x", "de", 0)
    assert keep(LANGUAGE)("x", None, 0)
    assert not keep(LANGUAGE)("x", "fr", 0)
    assert not keep(item("language", accept=["en"], missing="drop"))("x", None, 0)


@pytest.mark.parametrize(("length", "kept"), [(99, False), (100, True), (5000, True), (5001, False)])
def test_length_counts_characters_with_both_ends_included(length, kept):
    assert keep(LENGTH)("é" * length, None, 0) is kept
    assert keep(item("length", min_characters=100, max_characters=None))("é" * length, None, 0) is (length >= 100)


@given(st.lists(st.sampled_from(["a", "bb", "ccc", "long-word-of-many-letters", "\u3000", "x\n"]), max_size=80))
def test_the_quick_look_at_a_prefix_never_changes_what_unique_words_decides(pieces):
    text = " ".join(pieces)
    found = len(set(text.split()))
    for low in (0, 1, 3, 5):
        assert keep(item("unique_words", min_unique=low, min_share=0.0))(text, None, 0) == (found >= low)


def test_unique_words_as_a_share_of_all_words():
    half = item("unique_words", min_unique=0, min_share=0.5)
    assert keep(half)("a b a b", None, 0)
    assert not keep(half)("a b a b a", None, 0)


def test_token_ratio_drops_what_the_tokenizer_shatters():
    assert keep(RATIO)("x" * 10, None, 5)
    assert not keep(RATIO)("x" * 10, None, 6)


def test_filters_that_compare_documents_must_come_last():
    with pytest.raises(ConfigError, match="filter length stands behind exact_duplicates"):
        document_filters([EXACT, LENGTH])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus in which every filter has a known number of documents to drop."""
    prose = [words(i, 80) for i in range(60)]
    near = [text + " changed" for text in prose[:4]]
    records = [
        *prose,
        *({"text": words(900 + i, 80), "meta": {"lang": "fr"}} for i in range(5)),
        *("too short" + str(i) for i in range(7)),
        *("again and " * 30 + str(i) for i in range(3)),
        *(" ".join(chr(0x4E00 + 97 * i + 13 * k) for k in range(100)) for i in range(2)),
        *prose[:6],
        *near,
    ]
    path = tmp_path_factory.mktemp("chain") / "a.jsonl"
    path.write_bytes(json_lines(records))
    return path, records


def report(root):
    with open(root / "corpus" / "report.csv") as file:
        return list(csv.DictReader(file))


def test_every_filter_is_reported_in_order_with_what_it_dropped_and_left(corpus, tmp_path):
    path, _ = corpus
    chain = [LANGUAGE, LENGTH, UNIQUE, RATIO, EXACT, NEAR]
    run_stages(tmp_path, corpus_settings(path=str(path), filters=chain))
    rows = report(tmp_path)
    names = ["unreadable", "language", "length", "unique_words", "token_ratio", "exact_duplicates", "near_duplicates"]
    assert [row["filter"] for row in rows] == names
    assert [int(row["dropped_documents"]) for row in rows] == [0, 5, 7, 3, 2, 6, 4]
    assert int(rows[-1]["kept_documents"]) == 60


def test_documents_and_bytes_of_the_report_add_up_to_the_shards(corpus, tmp_path):
    path, records = corpus
    run_stages(tmp_path, corpus_settings(path=str(path), filters=[LENGTH, EXACT], target_tokens=8000))
    rows = report(tmp_path)
    texts = [r if isinstance(r, str) else r["text"] for r in records]
    for before, row in zip([None, *rows], rows, strict=False):
        documents = len(texts) if before is None else int(before["kept_documents"])
        size = sum(len(t.encode()) for t in texts) if before is None else int(before["kept_bytes"])
        assert int(row["kept_documents"]) == documents - int(row["dropped_documents"])
        assert int(row["kept_bytes"]) == size - int(row["dropped_bytes"])
    splits = read_json(tmp_path / "tokens" / "manifest.json")["splits"].values()
    assert int(rows[-1]["kept_documents"]) == sum(s["documents"] for s in splits)
    assert int(rows[-1]["kept_bytes"]) == sum(s["bytes"] for s in splits)
    assert 0 < 8000 - sum(s["tokens"] for s in splits) < 400


def test_the_token_ratio_sees_the_same_counts_wherever_it_stands_in_the_chain(corpus, tmp_path):
    path, _ = corpus
    kept = []
    for i, chain in enumerate(([RATIO, LENGTH, LANGUAGE], [LANGUAGE, LENGTH, RATIO], [LENGTH, RATIO, LANGUAGE])):
        root = tmp_path / str(i)
        run_stages(root, corpus_settings(path=str(path), filters=chain), token_settings(engine="fastokens"))
        kept.append(read_json(root / "tokens" / "manifest.json")["digest"])
    assert len(set(kept)) == 1


def test_a_chain_that_drops_everything_is_explained(corpus, tmp_path):
    path, _ = corpus
    with pytest.raises(CorpusError, match="no document is left"):
        run_stages(
            tmp_path,
            corpus_settings(path=str(path), filters=[item("length", min_characters=10**6, max_characters=None)]),
        )


def test_a_filter_that_occurs_twice_is_refused():
    with pytest.raises(ConfigError, match="length occurs twice"):
        document_filters([LENGTH, LANGUAGE, LENGTH])
