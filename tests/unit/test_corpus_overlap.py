"""Filter `containment`: what held-out documents share with training: against sets of words, and embedded."""

import csv
import itertools
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.config import load
from lmu_scaling.corpus.filters.containment import ContainmentFilter
from lmu_scaling.corpus.overlap import overlap
from lmu_scaling.tokens.part_files import SignatureFiles
from tests.corpus_helpers import corpus_settings, json_lines, run_stages, token_settings, words

TRAIN, VALIDATION, TEST = 0, 1, 2


def containment(**settings):
    return ContainmentFilter(name="containment", **settings)


def signed(folder, item, texts, splits, cuts=()):
    """Signatures of documents cut into parts at `cuts`, with the given splits."""
    paths = []
    for i, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(texts)])):
        paths.append(Path(folder) / f"{i}.npz")
        np.savez(paths[-1], **item.sign(texts[start:end]))
    signatures = SignatureFiles(paths)
    signatures.add("split", np.array(splits, np.uint8))
    return signatures


def runs(text, length):
    found = re.findall(r"\w+", text.lower())
    return {tuple(found[i : i + length]) for i in range(max(len(found) - length + 1, 1))}


documents = st.lists(
    st.tuples(st.lists(st.sampled_from("abc"), max_size=12).map(" ".join), st.sampled_from([TRAIN, VALIDATION, TEST])),
    min_size=1,
    max_size=8,
)


@given(documents, st.integers(1, 3), st.data())
@settings(deadline=None, max_examples=60)
def test_shares_are_those_of_sets_of_words_whatever_the_parts(rows, length, data):
    texts, splits = zip(*rows, strict=True)
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    with tempfile.TemporaryDirectory() as folder:
        found = overlap(signed(folder, containment(words=length), list(texts), splits, cuts), kept)
    sets = [runs(text, length) for text in texts]
    training = set().union(*(s for s, split, k in zip(sets, splits, kept, strict=True) if k and split == TRAIN))
    held_out = [k and split != TRAIN for split, k in zip(splits, kept, strict=True)]
    assert found.runs.tolist() == [len(s) if held else 0 for s, held in zip(sets, held_out, strict=True)]
    assert found.shared.tolist() == [len(s & training) if held else 0 for s, held in zip(sets, held_out, strict=True)]


def test_only_held_out_documents_above_the_bound_are_dropped(tmp_path):
    training = [words(i, 300) for i in range(20)]
    copy = training[0] + " with an end of its own"
    mosaic = " ".join(" ".join(text.split()[:20]) for text in training)
    at_bound = " ".join([*training[1].split()[:17], *words(99, 183).split()])
    texts = [*training, copy, mosaic, at_bound, words(500, 300), training[2] + " end"]
    splits = [*[TRAIN] * 20, TEST, VALIDATION, TEST, TEST, TRAIN]
    every = np.ones(len(texts), bool)
    found = containment().drops(signed(tmp_path, containment(), texts, splits, [7]), every)
    assert np.flatnonzero(found).tolist() == [20, 21, 22], "the copy, the mosaic of many, and 10 runs of 193"
    allowed = containment(max_share=10 / 193)
    found = allowed.drops(signed(tmp_path, allowed, texts, splits), every)
    assert np.flatnonzero(found).tolist() == [20, 21], "a share equal to the bound is allowed"


def test_training_documents_that_were_dropped_before_do_not_count(tmp_path):
    texts = [words(1, 100), words(1, 100), words(2, 100)]
    signatures = signed(tmp_path, containment(), texts, [TRAIN, TEST, TRAIN])
    assert containment().drops(signatures, np.array([True, True, True])).tolist() == [False, True, False]
    assert containment().drops(signatures, np.array([False, True, True])).tolist() == [False, False, False]


def test_a_sample_of_the_runs_estimates_the_share(tmp_path):
    training, new = words(1, 8000), words(2, 6000)
    mixed = " ".join([*training.split()[:2000], *new.split()])
    exact = len(runs(mixed, 8) & runs(training, 8)) / len(runs(mixed, 8))
    assert 0.2 < exact < 0.3
    for sample in (4, 8, 16):
        item = containment(sample=sample)
        found = overlap(signed(tmp_path, item, [training, mixed], [TRAIN, TEST]), np.ones(2, bool))
        compared = int(found.runs[1])
        assert compared == pytest.approx(8000 / sample, rel=0.2)
        error = (exact * (1 - exact) / compared) ** 0.5
        assert found.shared[1] / compared == pytest.approx(exact, abs=4 * error)


def table(folder):
    with open(folder / "overlap.csv") as file:
        return {(row["when"], row["split"]): row for row in csv.DictReader(file)}


def test_the_embedded_corpus_loses_the_second_version_of_the_1945_address(tmp_path):
    # Golden numbers: sets of runs of eight words, found by re.findall(r"\w+"), in plain Python.
    config = load("config.yaml")
    folder = run_stages(tmp_path, config.corpus, config.tokens)
    rows = table(folder)
    assert rows["before", "test"]["largest_share"] == "0.67883"
    assert rows["before", "test"]["documents_above"] == "1"
    assert rows["before", "validation"]["largest_share"] == "0.025344"
    for split, largest, left in (("validation", "0.025344", "12"), ("test", "0.01221", "11")):
        row = rows["after", split]
        assert (row["largest_share"], row["documents_above"], row["documents"]) == (largest, "0", left)
    assert np.count_nonzero(np.load(folder / "drops.npy")) == 1


def test_without_the_filter_nothing_is_measured_and_the_subsample_is_measured_too(tmp_path):
    texts = [words(i, 60) for i in range(80)]
    texts += [text + " end" for text in texts[:40]]
    (tmp_path / "a.jsonl").write_bytes(json_lines(texts))
    chosen = {"path": str(tmp_path / "a.jsonl")}
    plain = run_stages(tmp_path / "plain", corpus_settings(**chosen), token_settings(vocab=300))
    assert table(plain) == {}
    chosen |= {"filters": [containment()], "target_tokens": 6000}
    folder = run_stages(tmp_path / "filtered", corpus_settings(**chosen), token_settings(vocab=300))
    rows = table(folder)
    assert all(int(rows["before", split]["documents_above"]) > 0 for split in ("validation", "test"))
    assert all(row["documents_above"] == "0" for (when, _), row in rows.items() if when == "after")
    fewer = [
        int(rows["after", split]["documents"]) < int(rows["before", split]["documents"])
        for split in ("validation", "test")
    ]
    assert all(fewer)
