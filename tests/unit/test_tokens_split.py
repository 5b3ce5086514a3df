"""The split by content hash: stable, proportional, and blind to everything but the text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmu_scaling.errors import TokensError
from lmu_scaling.runtime import read_json
from lmu_scaling.sections import Split
from lmu_scaling.tokens.split import SPLITS, split_of
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.tokens.tokenizer import Tokenizer
from tests.corpus_helpers import corpus_settings, json_lines, run_stages, token_settings, words, write_tar, zst

EXACT = {"name": "exact_duplicates"}
TEXTS = [words(i, 15) for i in range(60)]
TOKENIZER = Tokenizer(300)


def documents(shards):
    """Text → split, and the streams of all splits."""
    where, streams = {}, []
    for split in SPLITS:
        store = TokenStore(shards, split)
        streams.append(store.slice(0, len(store)).tobytes())
        bounds = store.document_bounds()
        for start, end in pairwise(bounds):
            text = TOKENIZER.decode(store.slice(start, end - 1))
            assert text not in where, "a duplicate crossed over"
            where[text] = split
    return where, streams


def run(root, texts, members, parts):
    """Cut `texts` into members at `members`, run all stages with `parts` parts."""
    edges = [0, *sorted(members), len(texts)]
    files = {f"{i:03d}.jsonl.zst": zst(json_lines(texts[a:b])) for i, (a, b) in enumerate(pairwise(edges))}
    root.mkdir(parents=True, exist_ok=True)
    path = write_tar(root / "a.tar", files)
    chosen = corpus_settings(path=str(path), parts=parts, filters=[EXACT])
    return run_stages(root, chosen, token_settings(vocab=300))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return documents(run(tmp_path_factory.mktemp("reference"), TEXTS, [], 1))


@given(st.lists(st.integers(0, len(TEXTS)), max_size=6), st.integers(1, 5))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streams_are_byte_identical_whatever_the_members_and_parts(reference, tmp_path_factory, members, parts):
    where, streams = documents(run(tmp_path_factory.mktemp("run"), TEXTS, members, parts))
    assert streams == reference[1]
    assert where == reference[0]
    assert set(where) == set(TEXTS)


@given(st.randoms(use_true_random=False), st.integers(1, 3))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_document_keeps_its_split_in_any_order_among_duplicates_and_strangers(
    reference, tmp_path_factory, random, parts
):
    strangers = [words(random.randrange(1000, 2000), 12) for _ in range(10)]
    texts = random.sample([*TEXTS, *TEXTS[:15], *set(strangers)], len(TEXTS) + 15 + len(set(strangers)))
    where, _ = documents(run(tmp_path_factory.mktemp("run"), texts, [20, 50], parts))
    assert {text: where[text] for text in TEXTS} == reference[0]


def test_shares_are_met_by_a_large_corpus():
    hashes = np.random.default_rng(0).integers(0, 2**64, (200_000, 2), dtype=np.uint64)
    shares = Split(train=0.96, validation=0.03, test=0.01)
    found = np.bincount(split_of(hashes, shares), minlength=3) / len(hashes)
    assert np.allclose(found, [0.96, 0.03, 0.01], atol=0.002)


def test_growing_the_training_share_moves_documents_only_into_training():
    hashes = np.random.default_rng(0).integers(0, 2**64, (10_000, 2), dtype=np.uint64)
    before = split_of(hashes, Split(train=0.8, validation=0.1, test=0.1))
    after = split_of(hashes, Split(train=0.85, validation=0.05, test=0.1))
    assert np.all(after[before == 0] == 0)


def test_the_extremes_of_the_hash_fall_into_a_split():
    hashes = np.array([[0, 0], [2**64 - 1, 0]], np.uint64)
    assert split_of(hashes, corpus_settings().split).tolist() == [0, 2]


def test_an_empty_split_is_an_error_and_a_tiny_one_is_said_plainly(tmp_path):
    with pytest.raises(TokensError, match=r"split validation and test holds no document \(documents: train 4"):
        run(tmp_path / "few", TEXTS[:4], [], 1)
    shards = run(tmp_path / "more", TEXTS, [], 1)
    warnings = read_json(shards / "index.json")["warnings"]
    assert any("validation holds only" in warning for warning in warnings)
