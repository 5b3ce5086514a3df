"""Standard errors and bins of the evaluation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.evaluation.positions import FINE, bin_centres, bin_edges, bin_of_position, bins_within, overlap
from lmu_scaling.evaluation.sums import PositionSums, SplitSums, ratio_se


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 3000), per_octave=st.integers(1, 12))
def test_every_position_lies_in_exactly_one_bin(n, per_octave):
    edges = bin_edges(n, per_octave)
    assert edges[0] == 0
    assert edges[-1] == n
    assert (np.diff(edges) > 0).all()
    which = bin_of_position(n, per_octave)
    positions = np.arange(1, n + 1)
    assert (edges[which] < positions).all()
    assert (positions <= edges[which + 1]).all()


@pytest.mark.parametrize("per_octave", [1, 2, 3, 4, 8])
def test_the_octaves_of_the_plateau_statistic_are_unions_of_bins(per_octave):
    edges = bin_edges(1024, per_octave)
    for above, upto in ((64, 128), (512, 1024)):
        mask = bins_within(edges, above, upto)
        assert np.diff(edges)[mask].sum() == upto - above


@pytest.mark.parametrize("n", [16, 100, 256, 1000, 1024])
@pytest.mark.parametrize("per_octave", [1, 2, 3, 4])
def test_overlap_conserves_positions(n, per_octave):
    coarse, fine = bin_edges(n, per_octave), bin_edges(n, FINE)
    shared = overlap(coarse, fine)
    np.testing.assert_array_equal(shared.sum(axis=1), np.diff(coarse))
    np.testing.assert_array_equal(shared.sum(axis=0), np.diff(fine))


def test_centres_are_geometric_means():
    np.testing.assert_allclose(bin_centres(np.array([0, 1, 4])), [1, (2 * 3 * 4) ** (1 / 3)])


def test_standard_error_of_equal_sequences_is_the_textbook_one():
    losses = np.random.default_rng(0).normal(5, 1, 50)
    expected = losses.std(ddof=1) / np.sqrt(50)
    assert ratio_se(losses * 256, np.full(50, 256.0)) == pytest.approx(expected, rel=1e-12)


def test_standard_error_over_documents_covers_the_truth():
    """Documents of unequal length with a difficulty of their own; 95 % of ±1.96 SE must contain the mean."""
    rng, hits, tries = np.random.default_rng(1), 0, 400
    for _ in range(tries):
        lengths = rng.geometric(1 / 40, 60).astype(float)
        totals = lengths * (4 + rng.normal(0, 0.5, 60)) + rng.normal(0, 2, 60) * np.sqrt(lengths)
        estimate = totals.sum() / lengths.sum()
        se = ratio_se(totals, lengths)
        hits += abs(estimate - 4) < 1.96 * se
    assert 0.90 < hits / tries < 0.99


def test_one_cluster_has_no_standard_error():
    assert ratio_se(np.array([3.0]), np.array([1.0])) is None


def test_position_sums_match_numpy():
    rng = np.random.default_rng(2)
    losses = rng.normal(5, 1, (7, 8))
    sums = PositionSums(8)
    for row in losses:
        sums.add(np.arange(1, 9), row)
    frame = sums.frame()
    np.testing.assert_allclose(frame["mean"], losses.mean(axis=0))
    np.testing.assert_allclose(frame["se"], losses.std(axis=0, ddof=1) / np.sqrt(7))


def test_bins_of_a_cut_window_are_nan_where_it_ends():
    sums = SplitSums(16, 1)
    zeros = np.zeros((1, 5), np.int64)
    sums.add(np.array([0]), np.arange(1.0, 6.0)[None], zeros, zeros)
    bins = sums.sequences()["bins"].iloc[0]
    edges = bin_edges(16, FINE)
    assert np.isnan(bins[edges[:-1] >= 5]).all()
    assert bins[0] == 1.0
    assert bins[list(edges).index(4)] == 5.0
