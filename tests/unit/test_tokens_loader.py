"""Store, sampler, loader: windows tile the stream, a batch follows from (seed, step), epochs are permutations."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.errors import TokensError
from lmu_scaling.runtime import write_json
from lmu_scaling.tokens import loader as loader_module
from lmu_scaling.tokens.loader import Loader, Sampler, permute
from lmu_scaling.tokens.store import TokenStore

EOT = 9


def make_store(folder, shards):
    """A store over given shards, lists of documents, each a list of ids."""
    folder.mkdir(parents=True, exist_ok=True)
    facts, arrays = [], []
    for i, shard in enumerate(shards):
        ids = np.array([t for document in shard for t in [*document, EOT]], "<u2")
        (folder / f"{i}.bin").write_bytes(ids.tobytes())
        arrays.append(ids)
        fact = {"split": "train", "file": f"{i}.bin", "tokens": len(ids), "documents": len(shard), "bytes": len(ids)}
        facts.append(fact | {"sha256": hashlib.sha256(ids.tobytes()).hexdigest()})
    totals = {key: sum(fact[key] for fact in facts) for key in ("tokens", "documents", "bytes")}
    manifest = {"digest": "d", "dtype": "<u2", "vocab": 10, "eot": EOT, "splits": {"train": totals}, "shards": facts}
    write_json(folder / "index.json", manifest)
    return TokenStore(folder, "train", verify=True), np.concatenate([*arrays, np.zeros(0, "<u2")])


documents = st.lists(st.integers(0, 8), min_size=0, max_size=12)
layouts = st.lists(st.lists(documents, max_size=5), min_size=1, max_size=5)


@given(layouts, st.integers(1, 7))
@settings(max_examples=80, deadline=None)
def test_windows_tile_the_stream_across_shards(tmp_path_factory, layout, n):
    store, stream = make_store(tmp_path_factory.mktemp("store"), layout)
    assert len(store) == len(stream)
    assert store.windows(n) == max(len(stream) - 1, 0) // n
    windows = store.gather(np.arange(store.windows(n)), n)
    assert windows.dtype == np.int64
    assert windows.shape == (store.windows(n), n + 1)
    targets = windows[:, 1:].ravel()
    assert np.array_equal(targets, stream[1 : 1 + len(targets)]), "each token but the first is a target once"
    assert all(a[-1] == b[0] for a, b in pairwise(windows))


@given(layouts)
@settings(max_examples=80, deadline=None)
def test_document_bounds_are_where_separators_say(tmp_path_factory, layout):
    store, stream = make_store(tmp_path_factory.mktemp("store"), layout)
    assert store.document_bounds().tolist() == [0, *(np.flatnonzero(stream == EOT) + 1).tolist()]
    assert store.documents == int((stream == EOT).sum())


@pytest.mark.parametrize("index", [-1, 3])
def test_a_window_outside_the_stream_is_refused(tmp_path, index):
    store, _ = make_store(tmp_path, [[[1, 2], [3]]])
    with pytest.raises(IndexError):
        store.gather(np.array([index]), 2)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_the_keyed_permutation_is_one(n, key):
    assert np.array_equal(np.sort(permute(np.arange(n), n, key)), np.arange(n))


def test_permutations_of_different_keys_differ_and_look_random():
    n = 10_007
    first, second = permute(np.arange(n), n, 1), permute(np.arange(n), n, 2)
    assert (first == second).mean() < 0.01
    assert abs(np.corrcoef(first, np.arange(n))[0, 1]) < 0.05
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.05
    assert abs(np.diff(first) > 0).mean() == pytest.approx(0.5, abs=0.03)


@given(st.integers(1, 200), st.integers(1, 17), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_no_window_comes_twice_before_all_came_once(windows, batch, seed):
    sampler = Sampler(windows, batch, seed)
    steps = -(-3 * windows // batch)
    sequence = np.concatenate([sampler.batch(step) for step in range(steps)])
    for epoch in range(3):
        assert sorted(sequence[epoch * windows : (epoch + 1) * windows].tolist()) == list(range(windows))
    assert sampler.epochs(steps) == pytest.approx(steps * batch / windows)


def test_a_batch_depends_on_seed_and_step_only():
    one, two = Sampler(1000, 8, 5), Sampler(1000, 8, 5)
    for step in (700, 3, 124, 125, 0):
        assert np.array_equal(one.batch(step), two.batch(step))
    assert not np.array_equal(one.batch(0), Sampler(1000, 8, 6).batch(0))
    assert not np.array_equal(one.batch(0), one.batch(125)), "the next epoch has another order"


def test_the_order_is_fixed_for_good():
    """Written down when the sampler was made: a change would silently change every training."""
    assert Sampler(1000, 8, 5).batch(0).tolist() == GOLDEN_BATCH


GOLDEN_BATCH = [685, 84, 560, 111, 373, 498, 604, 555]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_each_batch_without_overlap(world):
    whole = Sampler(90, 8, 1)
    ranks = [Sampler(90, 8, 1, rank, world) for rank in range(world)]
    for step in range(30):
        assert np.array_equal(np.concatenate([rank.batch(step) for rank in ranks]), whole.batch(step))


def test_impossible_samplers_are_explained():
    with pytest.raises(TokensError, match="shorter than one window"):
        Sampler(0, 8, 1)
    with pytest.raises(TokensError, match="cannot be divided among 3"):
        Sampler(100, 8, 1, 0, 3)


def test_memory_does_not_grow_with_the_number_of_windows():
    batch = Sampler(10**12, 4, 0).batch(10**9)
    assert len(set(batch.tolist())) == 4
    assert batch.max() < 10**12


@pytest.fixture(params=["here", "by a thread"])
def way(request, monkeypatch):
    """Small batches are made on the spot, large ones ahead."""
    monkeypatch.setattr(loader_module, "SMALL", 1 << 16 if request.param == "here" else 0)


@pytest.mark.usefixtures("way")
def test_the_loader_gives_the_samplers_batches_shifted_by_one_and_resumes_anywhere(tmp_path):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    store, _ = make_store(tmp_path, [[rng.integers(0, 9, 50).tolist() for _ in range(20)] for _ in range(3)])
    sampler = Sampler(store.windows(16), 6, 3)
    loader = Loader(store, sampler, 16, stop=40)
    batches = list(loader)
    assert len(batches) == 40
    for step, (inputs, targets) in enumerate(batches):
        windows = store.gather(sampler.batch(step), 16)
        assert inputs.dtype == targets.dtype == torch.int64
        assert np.array_equal(inputs.numpy(), windows[:, :-1])
        assert np.array_equal(targets.numpy(), windows[:, 1:])
    resumed = list(Loader(store, sampler, 16, start=25, stop=40))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(resumed, batches[25:], strict=True))
    assert loader.wait_seconds >= 0
    assert list(Loader(store, sampler, 16, start=40, stop=40)) == []


@pytest.mark.usefixtures("way")
def test_a_reader_may_leave_early_and_errors_in_the_thread_reach_it(tmp_path):
    pytest.importorskip("torch")
    import threading

    store, _ = make_store(tmp_path, [[[1] * 100]])
    before = threading.active_count()
    for _ in Loader(store, Sampler(store.windows(8), 2, 0), 8):
        break
    assert threading.active_count() == before
    with pytest.raises(IndexError):
        list(Loader(store, Sampler(10**6, 2, 0), 8, stop=3))
