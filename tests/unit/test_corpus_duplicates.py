"""Exact and near duplicates, and the subsample: invariants on real signatures, against brute force."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.corpus.filters.exact_duplicates import repeated
from lmu_scaling.corpus.filters.near_duplicates import NearDuplicatesFilter
from lmu_scaling.corpus.minhash import bands_and_rows
from lmu_scaling.corpus.shingles import shingle_hashes
from lmu_scaling.tokens.part_files import SignatureFiles
from lmu_scaling.tokens.split import subsample
from tests.corpus_helpers import words

NEAR = NearDuplicatesFilter(name="near_duplicates", threshold=0.8, permutations=128, shingle=3)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_exact_duplicates_are_all_but_the_first_of_each_hash(pairs):
    hashes = np.array(pairs, np.uint64).reshape(-1, 2)
    expected = [pair in pairs[:i] for i, pair in enumerate(pairs)]
    assert repeated(hashes).tolist() == expected


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9])
def test_banding_compares_nearly_all_pairs_at_the_threshold_and_few_far_below(threshold):
    bands, rows = bands_and_rows(threshold, 128)
    assert bands * rows <= 128
    assert 1 - (1 - threshold**rows) ** bands >= 0.95
    assert 1 - (1 - 0.1**rows) ** bands < 0.05
    assert (1 - threshold ** (rows + 1)) ** (128 // (rows + 1)) > 0.05, "one more row would miss too many"


def jaccard(a, b, shingle):
    left, right = (set(hashes.tolist()) for hashes in shingle_hashes([a, b], shingle))
    return len(left & right) / len(left | right)


def with_changes(text, changes):
    out = text.split()
    for i in range(changes):
        out[(i * 37 + 5) % len(out)] = f"new{i}"
    return " ".join(out)


def signed(tmp_path, texts, cuts):
    """Signatures of documents cut into parts at `cuts`."""
    paths = []
    for i, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(texts)])):
        paths.append(tmp_path / f"{i}.npz")
        np.savez(paths[-1], **NEAR.sign(texts[start:end]))
    return SignatureFiles(paths)


def test_close_copies_are_found_and_distant_ones_kept_whatever_the_parts(tmp_path):
    originals = [words(i, 200) for i in range(30)]
    close = [with_changes(text, 2) for text in originals[:10]]
    far = [with_changes(text, 60) for text in originals[10:20]]
    texts = [*originals, *close, *far]
    assert all(jaccard(a, b, 3) > 0.9 for a, b in zip(originals, close, strict=False))
    assert all(jaccard(a, b, 3) < 0.5 for a, b in zip(originals[10:], far, strict=False))
    expected = [30 <= i < 40 for i in range(len(texts))]
    for cuts in ([], [25], [0, 1, 33, 50]):
        found = NEAR.drops(signed(tmp_path, texts, cuts), np.ones(len(texts), bool))
        assert found.tolist() == expected


def test_of_a_chain_of_copies_only_the_first_stays(tmp_path):
    chain = [words(1, 200)]
    for _ in range(12):
        chain.append(chain[-1] + " more words")
    found = NEAR.drops(signed(tmp_path, chain, [4]), np.ones(len(chain), bool))
    assert found.tolist() == [False] + [True] * 12


def test_documents_dropped_before_neither_drop_nor_are_dropped_again(tmp_path):
    texts = [words(1, 200), words(1, 200) + " more", words(1, 200) + " more still"]
    candidates = np.array([False, True, True])
    found = NEAR.drops(signed(tmp_path, texts, []), candidates)
    assert found.tolist() == [False, False, True]


def test_case_punctuation_and_layout_do_not_hide_a_copy():
    one, two = shingle_hashes(["“A quick,  brown\n fox” – naïve!", "a QUICK brown fox naïve"], 2)
    assert np.array_equal(one, two)
    assert len(one) == 4


@pytest.mark.parametrize("text", ["", "one", "?!", "“”"])
def test_very_short_documents_have_a_signature(text):
    assert len(shingle_hashes([text], 5)[0]) == 1


@given(st.lists(st.text(alphabet="ab é日-“ \n", max_size=30), max_size=6), st.integers(1, 4))
@settings(deadline=None)
def test_shingles_of_a_batch_are_those_of_its_documents_and_of_words_found_by_hand(texts, shingle):
    batch = shingle_hashes(texts, shingle)
    assert len(batch) == len(texts)
    found = [re.findall(r"\w+", text.lower()) for text in texts]
    by_words = {}
    for text, words_here, hashes in zip(texts, found, batch, strict=True):
        assert np.array_equal(hashes, shingle_hashes([text], shingle)[0])
        assert len(hashes) == max(len(words_here) - shingle + 1, 1)
        assert by_words.setdefault(tuple(words_here), hashes.tolist()) == hashes.tolist()


def test_signatures_estimate_jaccard_similarity():
    texts = [words(i, 300) for i in range(8)]
    pairs = [(text, with_changes(text, n)) for text, n in zip(texts, (1, 3, 6, 10, 15, 25, 40, 80), strict=True)]
    errors = []
    for a, b in pairs:
        left, right = np.concatenate(list(NEAR.sign([a, b]).values()), axis=1)
        errors.append((left == right).mean() - jaccard(a, b, NEAR.shingle))
    assert np.abs(errors).max() < 0.15
    assert np.sqrt(np.mean(np.square(errors))) < 0.06


tables = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 2**64 - 1)), min_size=1, max_size=60, unique_by=lambda t: t[1]
)


@given(tables, st.integers(1, 20_000), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_subsample_is_the_same_set_whatever_the_order_and_as_large_as_possible(rows, target, random):
    def chosen(order):
        tokens = np.array([rows[i][0] for i in order])
        hashes = np.array([[0, rows[i][1]] for i in order], np.uint64)
        dropped = subsample(hashes, tokens, np.ones(len(order), bool), target)
        return {order[i] for i in np.flatnonzero(~dropped)}

    order = list(range(len(rows)))
    shuffled = random.sample(order, len(order))
    kept = chosen(order)
    assert kept == chosen(shuffled)
    total = sum(rows[i][0] for i in kept)
    assert total <= target
    left = sorted(set(order) - kept, key=lambda i: rows[i][1])
    assert not left or total + rows[left[0]][0] > target


def test_a_larger_target_keeps_a_superset():
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**63, (500, 2)).astype(np.uint64)
    tokens = rng.integers(1, 1000, 500)
    kept = [~subsample(hashes, tokens, np.ones(500, bool), target) for target in (10_000, 50_000, 10**9)]
    assert np.all(kept[0] <= kept[1])
    assert kept[2].all()
