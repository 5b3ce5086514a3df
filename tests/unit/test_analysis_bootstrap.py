"""The hierarchical bootstrap: shared text cancels, few seeds widen, draws are reproducible."""

import numpy as np
import pandas as pd
import pytest

from lmu_scaling.analysis.bootstrap import block_starts, interval, make_cells
from lmu_scaling.analysis.comparisons import compare, gain_ratio
from lmu_scaling.errors import ResultsError


def experiment(seeds=2, sizes=4, seed_noise=0.005, difficulty=0.5, sequences=200, variants=("lmu", "transformer")):
    rng = np.random.default_rng(0)
    hard = rng.normal(0, difficulty, sequences)
    rows, losses = [], []
    for index, variant in enumerate(variants):
        for size in range(sizes):
            n = 10_000 * 2**size
            for seed in range(seeds):
                values = (10 + index) * n**-0.07 + rng.normal(0, seed_noise) + hard + rng.normal(0, 0.01, sequences)
                losses.append(values * 64)
                keys = {"run": f"{variant}-{size}-x1-s{seed}", "variant": variant, "size": str(size), "seed": seed}
                keys |= {"multiple": 1.0, "n_exact": n, "n_kaplan": n, "tokens": 1e6, "steps": 10}
                rows.append(keys | {"flops_per_token": 1, "flops_per_token_body": 1, "test_loss": values.mean()})
    blocks = np.array(losses)
    return pd.DataFrame(rows), (blocks, np.full(blocks.shape, 64.0))


def test_the_same_seed_gives_the_same_draws():
    table, blocks = experiment()
    first, second = (make_cells(table, blocks, 300, 0.95, 7) for _ in range(2))
    np.testing.assert_array_equal(first.log_loss, second.log_loss)


def test_draws_scatter_around_the_estimate():
    table, blocks = experiment()
    cells = make_cells(table, blocks, 2000, 0.95, 0)
    np.testing.assert_allclose(cells.log_loss.mean(axis=0), cells.point, atol=2e-3)


def test_hard_text_moves_all_models_together_and_leaves_differences_sharp():
    table, blocks = experiment()
    cells = make_cells(table, blocks, 1000, 0.95, 0)
    losses = np.exp(cells.log_loss)
    of_level = losses[:, 0].std()
    of_difference = (losses[:, 0] - losses[:, 4]).std()
    assert of_level > 0.02
    assert of_difference < of_level / 3


def test_the_spread_between_seeds_is_unbiased_for_two_seeds():
    sigmas = []
    for trial in range(40):
        table, blocks = experiment(seeds=2, sizes=6)
        rng = np.random.default_rng(trial)
        table["test_loss"] = 5 * np.exp(rng.normal(0, 0.01, len(table)))
        sigmas.append(make_cells(table, blocks, 100, 0.95, 0).noise["lmu"].sigma ** 2)
    assert np.sqrt(np.mean(sigmas)) == pytest.approx(0.01, rel=0.15)


@pytest.mark.parametrize(
    ("seeds", "sizes", "source"),
    [(2, 4, "seeds of this variant"), (2, 2, "seeds of all variants"), (1, 5, "scatter"), (1, 2, "assumed")],
)
def test_the_source_of_seed_noise_is_named(seeds, sizes, source):
    table, blocks = experiment(seeds, sizes)
    assert source in make_cells(table, blocks, 100, 0.95, 0).noise["lmu"].source


def test_with_one_seed_the_interval_of_a_single_size_covers_as_often_as_it_says():
    """Its own error is part of the scatter that the spread is read from: it must not be counted twice."""
    table, blocks = experiment(seeds=1, sizes=6, sequences=2, variants=("lmu",))
    blocks = (np.ones_like(blocks[0]), blocks[1])  # no text is harder than another: seeds are the only noise
    truth = np.log(10 * table["n_exact"].to_numpy(float) ** -0.07)
    hits = []
    for trial in range(250):
        table["test_loss"] = np.exp(truth + np.random.default_rng(trial).normal(0, 0.01, len(table)))
        cells = make_cells(table, blocks, 400, 0.95, trial)
        low, high = cells.interval(cells.log_loss)
        hits.append((low[1] <= truth[1]) & (truth[1] <= high[1]))
    assert 0.91 <= np.mean(hits) <= 0.985


def test_seeds_that_differ_in_size_are_refused():
    table, blocks = experiment()
    table.loc[0, "n_exact"] += 1
    with pytest.raises(ResultsError, match="differ in n_exact"):
        make_cells(table, blocks, 100, 0.95, 0)


def test_intervals_may_be_infinite_and_skip_nan():
    draws = np.r_[np.arange(90.0), np.full(10, np.inf), np.full(5, np.nan)]
    low, high = interval(draws, 0.9)
    assert low == pytest.approx(4, abs=1)
    assert high == np.inf


def test_blocks_are_contiguous_and_never_more_than_the_windows():
    assert block_starts(np.arange(10)).tolist() == list(range(10))
    starts = block_starts(np.arange(100_000))
    assert len(starts) == 400
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()


def test_few_documents_are_resampled_whole():
    assert block_starts(np.repeat([3, 4, 9], [5, 1, 2])).tolist() == [0, 5, 6]
    assert len(block_starts(np.repeat(np.arange(299), 10))) == 299
    assert len(block_starts(np.repeat(np.arange(300), 10))) == 400, "with many documents the blocks are of equal length"


def test_a_comparison_is_positive_when_the_first_is_better():
    table, blocks = experiment()
    cells = make_cells(table, blocks, 500, 0.95, 0)
    entry = compare(cells, "lmu", "transformer")
    assert 0 < entry["low"] < entry["difference"] < entry["high"]
    assert len(entry["per_size"]) == 4
    assert compare(cells, "lmu", "absent") is None


def test_the_gain_ratio_needs_all_three_and_is_right():
    table, blocks = experiment(variants=("lmu", "transformer", "lstm"), seed_noise=1e-4, difficulty=0.01)
    cells = make_cells(table, blocks, 300, 0.95, 0)
    found = gain_ratio(cells)
    assert found["low"] < 1 < found["high"]
    assert found["ratio"] == pytest.approx(1, abs=0.02)
    table, blocks = experiment()
    assert gain_ratio(make_cells(table, blocks, 100, 0.95, 0)) is None
