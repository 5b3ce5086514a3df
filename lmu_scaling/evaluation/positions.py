"""Logarithmic bins of token positions, shared by evaluation and analysis (section 5, per-token loss). No torch.

Bin k holds the positions t with 2^((k-1)/b) < t <= 2^(k/b), so that for every b the octaves (64, 128] and (512, 1024]
are unions of bins. Position t is the number of tokens the model has seen when it predicts the next one.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

FINE = 4  # bins per octave that evaluation keeps for every sequence; analysis joins them into those it shows


def bin_edges(n: int, per_octave: int) -> NDArray[np.int64]:
    """Upper ends of the bins that hold a position in 1 … n, preceded by 0; the last one is cut at n."""
    octaves = int(np.ceil(np.log2(n))) if n > 1 else 0
    ends = np.floor(2.0 ** (np.arange(octaves * per_octave + 1) / per_octave) + 1e-9).astype(np.int64)
    return np.unique(np.concatenate([[0], np.minimum(ends, n)]))


def bin_of_position(n: int, per_octave: int) -> NDArray[np.int64]:
    """For position t (at index t - 1) the index of its bin."""
    return np.searchsorted(bin_edges(n, per_octave)[1:], np.arange(1, n + 1))


def bin_centres(edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Geometric mean of the positions in each bin."""
    logs = np.log(np.arange(1, edges[-1] + 1))
    return np.exp([logs[lo:hi].mean() for lo, hi in pairwise(edges)])


def overlap(coarse: NDArray[np.int64], fine: NDArray[np.int64]) -> NDArray[np.float64]:
    """[coarse bins, fine bins]: how many positions of a fine bin lie in a coarse one."""
    low = np.maximum(coarse[:-1, None], fine[None, :-1])
    high = np.minimum(coarse[1:, None], fine[None, 1:])
    return np.maximum(high - low, 0).astype(np.float64)


def bins_within(edges: NDArray[np.int64], above: int, upto: int) -> NDArray[np.bool_]:
    """Which bins lie in (above, upto]."""
    return (edges[:-1] >= above) & (edges[1:] <= upto)
