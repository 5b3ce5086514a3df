"""The filter chain: each filter's rule, the order, and the report that accounts for every document and byte."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.corpus.filters import filter_class, ordered, registered
from lmu_scaling.errors import ConfigError, CorpusError
from lmu_scaling.fingerprint import reachable
from lmu_scaling.runtime import read_json
from tests.corpus_helpers import corpus_settings, json_lines, run_stages, token_settings, words

ROOT = Path(__file__).resolve().parents[2]


def item(name, **settings):
    return filter_class(name)(name=name, **settings)


LANGUAGE = item("language", accept=["en", "de"], missing="keep")
LENGTH = item("length", min_characters=100, max_characters=5000)
UNIQUE = item("unique_words", min_unique=20, min_share=0.0)
RATIO = item("token_ratio", max_tokens_per_character=0.5)
EXACT = item("exact_duplicates")
NEAR = item("near_duplicates", threshold=0.8, permutations=128, shingle=5)


def keep(filter_item):
    built = filter_item
    return lambda text, language, tokens: built.apply(text, language, tokens) == text


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
    with pytest.raises(ConfigError, match="filter length comes after exact_duplicates"):
        ordered([EXACT, LENGTH])


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
    with open(root / "tokens" / "report.csv") as file:
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
    splits = read_json(tmp_path / "tokens" / "index.json")["splits"].values()
    assert int(rows[-1]["kept_documents"]) == sum(s["documents"] for s in splits)
    assert int(rows[-1]["kept_bytes"]) == sum(s["bytes"] for s in splits)
    assert 0 < 8000 - sum(s["tokens"] for s in splits) < 400


def test_the_token_ratio_sees_the_same_counts_wherever_it_stands_in_the_chain(corpus, tmp_path):
    path, _ = corpus
    kept = []
    for i, chain in enumerate(([RATIO, LENGTH, LANGUAGE], [LANGUAGE, LENGTH, RATIO], [LENGTH, RATIO, LANGUAGE])):
        root = tmp_path / str(i)
        run_stages(root, corpus_settings(path=str(path), filters=chain), token_settings(engine="fastokens"))
        kept.append(read_json(root / "tokens" / "index.json")["digest"])
    assert len(set(kept)) == 1


def test_a_chain_that_drops_everything_is_explained(corpus, tmp_path):
    path, _ = corpus
    with pytest.raises(CorpusError, match=r"no document is left: length dropped \d+") as caught:
        run_stages(
            tmp_path,
            corpus_settings(path=str(path), filters=[item("length", min_characters=10**6, max_characters=None)]),
        )
    assert caught.value.remedy == "loosen the filter length"


def test_a_filter_that_occurs_twice_is_refused():
    with pytest.raises(ConfigError, match="length occurs twice"):
        ordered([LENGTH, LANGUAGE, LENGTH])


@pytest.mark.parametrize("name", registered())
def test_a_filter_is_named_like_its_module_and_described_in_the_schema(name):
    kind = registered()[name]
    assert kind.__module__ == f"lmu_scaling.corpus.filters.{name}"
    assert kind.model_json_schema()["properties"]["name"]["const"] == name
    assert kind.__doc__
    assert all(field.description for key, field in kind.model_fields.items() if key != "name")


def test_loading_the_configuration_imports_no_numpy():
    code = "import sys, lmu_scaling.config; print(sorted({'numpy', 'torch', 'tiktoken'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_the_code_behind_a_job_covers_the_configured_filters_only():
    name = "lmu_scaling.corpus.filters."
    assert not any(module.startswith(name) for module in reachable("lmu_scaling.tokens.encode"))
    found = reachable("lmu_scaling.tokens.encode", f"{name}near_duplicates")
    assert {module for module in found if module.startswith(name)} == {f"{name}near_duplicates"}
    assert "lmu_scaling.corpus.shingles" in found


# Two filters as somebody would add them: one looks at single documents and changes them, one compares documents.
SHOUTING = '''
"""Filter `shouting`: drop capitals, and remove exclamation marks from the rest."""

from typing import ClassVar, Literal

from pydantic import Field

from lmu_scaling.corpus.filters import DocumentFilter


class ShoutingFilter(DocumentFilter):
    """Drop documents in capitals; remove exclamation marks."""

    rewrites: ClassVar[bool] = True
    name: Literal["shouting"]
    mark: str = Field("!", description="What is removed")

    def apply(self, text, language, tokens):
        return None if text.isupper() else text.replace(self.mark, "") if self.mark in text else text
'''
SAME_LENGTH = '''
"""Filter `same_length`: keep the first document of each number of characters."""

from typing import Literal

from lmu_scaling.corpus.filters import CorpusFilter


class SameLengthFilter(CorpusFilter):
    """Drop documents as long as an earlier one."""

    name: Literal["same_length"]

    def sign(self, texts):
        import numpy as np

        return {"characters": np.array([len(text) for text in texts], np.int64)}

    def drops(self, signatures, candidates):
        import numpy as np

        drops, chosen = candidates.copy(), np.flatnonzero(candidates)
        drops[chosen[np.unique(signatures.all("characters")[chosen], return_index=True)[1]]] = False
        return drops
'''
USE = """
import sys
from pathlib import Path
import lmu_scaling.corpus.filters as filters
filters.__path__.append(sys.argv[1])
from lmu_scaling.config import read, validate
from lmu_scaling.paths import REPOSITORY
from tests.corpus_helpers import run_stages
raw = read(REPOSITORY / "config.yaml")
ratio = {"name": "token_ratio", "max_tokens_per_character": 1}
chain = [{"name": "shouting"}, ratio, {"name": "same_length"}]
raw["corpus"] |= {"source": "local", "path": sys.argv[2], "parts": 2, "filters": chain}
raw["corpus"]["split"] = {"train": 0.5, "validation": 0.25, "test": 0.25}
config = validate(raw)
run_stages(Path(sys.argv[3]), config.corpus, config.tokens)
try:
    validate(raw | {"corpus": raw["corpus"] | {"filters": [chain[1], chain[0], {"name": "same_lenght"}]}})
except filters.ConfigError as error:
    print(error)
"""


def test_a_new_filter_is_one_new_file(tmp_path):
    added = tmp_path / "added"
    added.mkdir()
    (added / "shouting.py").write_text(SHOUTING)
    (added / "same_length.py").write_text(SAME_LENGTH)
    kept = [words(i, 20 + i) for i in range(30)]
    kept = list({len(text): text for text in reversed(kept)}.values())
    loud = [words(90, 40).upper(), *(text + "!!!" for text in kept[:3])]
    texts = [*kept[3:], *loud, *(words(200 + i, 300)[: len(text)] for i, text in enumerate(kept[5:9]))]
    for name, half in (("a", texts[::2]), ("b", texts[1::2])):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{name}.jsonl").write_bytes(json_lines(half))
    command = [sys.executable, "-c", USE, str(added), str(tmp_path / "texts"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    rows = {row["filter"]: row for row in report(tmp_path)}
    assert list(rows) == ["unreadable", "shouting", "token_ratio", "same_length"]
    assert int(rows["shouting"]["dropped_documents"]) == 1
    assert int(rows["shouting"]["dropped_bytes"]) == len(loud[0]) + 3 * len("!!!")
    assert int(rows["same_length"]["dropped_documents"]) == 4
    splits = read_json(tmp_path / "tokens" / "index.json")["splits"].values()
    assert sum(split["documents"] for split in splits) == len(kept)
    assert sum(split["bytes"] for split in splits) == int(rows["same_length"]["kept_bytes"])
    assert "filter shouting changes text after token_ratio has counted its tokens" in done.stdout
    assert "unknown filter 'same_lenght' (did you mean 'same_length'?)" in done.stdout
