"""Filter `prose`: which paragraphs are kept, page breaks, and paragraphs that occur again anywhere in the corpus."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.corpus.filters import filter_class, ordered, surveyed
from lmu_scaling.corpus.repeats import Survey, piece_hash, repeats_of
from lmu_scaling.errors import ConfigError, CorpusError
from lmu_scaling.runtime import read_json
from lmu_scaling.tokens.survey import survey_file
from tests.corpus_helpers import corpus_settings, encode_part, json_lines, run_stages, token_settings, words


def item(name, **settings):
    return filter_class(name)(name=name, **settings)


PROSE = item("prose")
SMALL = token_settings(vocab=300)  # quick to load
FIRST = "The first paragraph is long enough to be kept and it has more than twelve words in it, as prose does."
SECOND = "Another one follows it, and is about the same length; it also consists of words, and of little else."

PAGED = """
Network Working Group                                          A. Author
Request for Comments: 0000                                   Some Place

                         TABLE OF CONTENTS

   1.  Introduction ............................................... 1
   2.  Security Considerations .................................... 2
   3.  References ................................................. 3

1.  Introduction

   This paragraph begins on the first page of the document and its last
   sentence is interrupted by the end of the page, so that what follows



Author                                                          [Page 1]
\f
RFC 0000                        A Title                     January 1990


   belongs to it although a footer and a header come in between, as in
   every packet-
   switched paragraph with pre- and post-
   conditions of any kind.

    +--------+--------+--------+--------+--------+--------+--------+
    |  type  |  code  |   checksum      |    identifier   | number |
    +--------+--------+--------+--------+--------+--------+--------+

   This one ends with the page, so the next page starts with another
   paragraph and not with the rest of it.



Author                                                          [Page 2]
\f
RFC 0000                        A Title                     January 1990


   The last paragraph stands by itself after the page break, and it is
   long enough to be kept as prose.



Author                                                          [Page 3]
"""


def test_paragraphs_are_joined_over_lines_and_pages_and_the_rest_is_dropped():
    kept = PROSE.apply(PAGED, None, 0).split("\n\n")
    assert [text.split(" ")[1] for text in kept] == ["paragraph", "one", "last"]
    assert "so that what follows belongs to it although" in kept[0]
    assert "packet-switched paragraph with pre- and post-conditions" in kept[0]
    assert not re.search(r"Page|RFC 0000|\f|\n", kept[0] + kept[1] + kept[2])


def test_line_ends_of_another_system_make_no_difference():
    assert PROSE.apply(PAGED.replace("\n", "\r\n"), None, 0) == PROSE.apply(PAGED, None, 0)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (FIRST, True),
        (FIRST[:79], False),
        ("internationalisation " * 11, False),
        ("internationalisation " * 12, True),
        ("one 2 3 4 5 6 7 8 9 " * 9, False),
        ("/* code */ for (i = 0; i < n; i++) { x[i] = y[i] + z[i]; } // more of it " * 2, False),
        ("_\b" + FIRST, False),
        ("Ein Absatz über Größe, Übermaß und Gefühl, der länger ist als achtzig Zeichen und zwölf Wörter hat.", True),
        ("", False),
    ],
)
def test_a_paragraph_is_kept_if_it_is_long_and_made_of_letters(text, kept):
    assert (PROSE.apply(text, None, 0) is not None) is kept


def test_the_bounds_are_settings():
    assert item("prose", min_characters=5, min_words=2).apply("two words", None, 0) == "two words"
    assert item("prose", min_letters=0.95).apply(FIRST, None, 0) == FIRST
    assert item("prose", min_letters=0.99).apply(FIRST, None, 0) is None
    unfinished = FIRST.rstrip(".")
    assert item("prose").apply(unfinished, None, 0) == unfinished
    assert item("prose", sentence_end=True).apply(f"{FIRST}\n\n{unfinished}", None, 0) == FIRST


@given(st.text(st.sampled_from(" \n\f\r\tabc.-[]|Page 1ü"), max_size=400))
def test_what_is_kept_is_in_the_source_and_is_kept_again(text):
    filter_ = item("prose", min_characters=3, min_words=1)
    kept = filter_.apply(text, None, 0)
    squeeze = str.maketrans("", "", " \n\f\r\t\x0b\x1c\x1d\x1e\x1f\x85")
    for piece in filter_.pieces(text):
        assert piece == " ".join(piece.split())
        assert kept and piece in kept
    if "Page" not in text:
        assert all(piece.translate(squeeze) in text.translate(squeeze) for piece in filter_.pieces(text))
        assert kept is None or filter_.apply(kept, None, 0) == kept


@pytest.mark.parametrize("hostile", ["\n", " ", "\n ", "[Page 1]", "[Page 1]\n", "[Page ", "\f", "a- ", "-", "\n\f"])
def test_time_grows_linearly_with_hostile_text(hostile):
    def seconds(size):
        begun = time.process_time()
        PROSE.apply(hostile * (size // len(hostile)), None, 0)
        return time.process_time() - begun

    assert seconds(1_600_000) < 40 * max(seconds(200_000), 0.005)


# ------------------------------------------------------------------------------------------------ repeated paragraphs
def library(tmp_path, count=24):
    """Documents with a paragraph of their own, one they share with a neighbour, and one they all have."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(count):
        own, shared = words(i, 40) + ".", words(1000 + i // 2, 40) + "."
        (folder / f"{i:03d}.txt").write_text(f"{SECOND}\n\n{shared}\n\n{own}\n\n{own}\n")
    return folder


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_paragraph_is_kept_where_it_occurs_first_however_the_corpus_is_cut(tmp_path, parts):
    folder = library(tmp_path)
    settings = corpus_settings(path=str(folder), filters=[PROSE], parts=parts)
    selection = read_json(run_stages(tmp_path, settings, SMALL) / "selection.json")
    assert selection["pieces"] == {
        "kept": 24 + 12 + 1,
        "repeated": 24 + 12 + 23,
        "repeated_bytes": 23 * len(SECOND)
        + sum(len(words(i, 40)) + 1 for i in range(24))
        + sum(len(words(1000 + i, 40)) + 1 for i in range(12)),
    }
    assert selection["text"]["documents"] == 24
    (tmp_path / "whole").mkdir()
    whole = run_stages(tmp_path / "whole", settings.model_copy(update={"parts": 1}), SMALL)
    assert read_json(whole / "selection.json")["text"] == selection["text"]
    assert read_json(whole / "index.json")["digest"] == read_json(tmp_path / "tokens" / "index.json")["digest"]


def test_the_report_counts_bytes_and_documents_without_anything_new(tmp_path):
    folder = library(tmp_path)
    (folder / "999.txt").write_text(SECOND)
    selection = read_json(
        run_stages(tmp_path, corpus_settings(path=str(folder), filters=[PROSE]), SMALL) / "selection.json"
    )
    row = selection["filters"][1]
    assert (row["filter"], row["dropped_documents"], row["kept_documents"]) == ("prose", 1, 24)
    assert row["kept_bytes"] == selection["text"]["bytes"] == selection["kept"]["bytes"]
    raw = sum(path.stat().st_size for path in folder.iterdir())
    assert row["dropped_bytes"] == raw - row["kept_bytes"]


def test_filters_before_prose_are_applied_before_its_paragraphs_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    shared = words(7, 40) + "."
    own = [words(100 + i, 60) + "." for i in range(30)]
    path.write_bytes(json_lines([shared, *(f"{text}\n\n{shared}" for text in own)]))
    chain = [item("length", min_characters=len(shared) + 1), PROSE]
    selection = read_json(
        run_stages(tmp_path, corpus_settings(path=str(path), filters=chain), SMALL) / "selection.json"
    )
    assert selection["pieces"]["kept"] == 31, "the dropped document does not count as the first with the paragraph"


def test_repeats_can_be_kept_and_then_nothing_is_surveyed(tmp_path):
    chain = [item("prose", repeated="keep")]
    assert surveyed(chain) is None
    selection = read_json(
        run_stages(tmp_path, corpus_settings(path=str(library(tmp_path)), filters=chain), SMALL) / "selection.json"
    )
    assert selection["pieces"] == {}
    assert not survey_file(tmp_path / "tokens" / "parts", 0).exists()


def test_a_missing_survey_is_explained(tmp_path):
    settings = corpus_settings(path=str(library(tmp_path)), filters=[PROSE])
    run_stages(tmp_path, settings, SMALL)
    survey_file(tmp_path / "tokens" / "parts", 0).unlink()
    with pytest.raises(CorpusError, match="missing or damaged") as error:
        encode_part(settings, SMALL, tmp_path / "corpus" / "source.json", 0, tmp_path / "tokens" / "parts")
    assert "00000.survey.npz" in error.value.where


def test_prose_comes_before_filters_that_count_tokens_or_compare_documents():
    with pytest.raises(ConfigError, match="filter prose changes text after token_ratio"):
        ordered([item("token_ratio"), PROSE])
    with pytest.raises(ConfigError, match="filter prose comes after exact_duplicates"):
        ordered([item("exact_duplicates"), PROSE])


@given(st.lists(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=5), max_size=6), min_size=1, max_size=4))
def test_surveys_of_parts_agree_with_one_pass_over_the_whole(parts):
    """Parts of documents of pieces; a single set of what was seen is the reference."""
    surveys = []
    for part in parts:
        survey = Survey()
        for document in part:
            survey.add([piece_hash(piece) for piece in document])
        surveys.append(survey.arrays())
    seen: set[str] = set()
    for i, part in enumerate(parts):
        repeats = repeats_of(surveys, i)
        for document in part:
            expected = [piece for piece in document if not (piece in seen or seen.add(piece))]
            assert [piece for piece in document if repeats.is_first(piece)] == expected
