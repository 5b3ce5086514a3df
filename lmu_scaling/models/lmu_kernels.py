"""The LMU's C kernels in float32 on a CPU: convolution with all filters, implicit self-attention, a step of generation.

Axes: b batch, n time, t tile of time, c step within a tile, d channel, k = 3q' rows of Q, K and V, f frequency.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from lmu_scaling.models.native import FLOAT, INT, LONG, POINTER, Kernel, address, library, threads

C_SOURCES = ("kernels/convolution.c", "kernels/attention.c", "kernels/product.c")

_spectrum = Kernel("lmu_spectrum", [POINTER] * 3 + [LONG] * 2 + [INT])
_convolve = Kernel("lmu_convolve", [POINTER] * 4 + [LONG] * 3 + [INT] * 3)
_correlate = Kernel("lmu_correlate", [POINTER] * 6 + [LONG] * 3 + [INT] * 3)
_filter_gradient = Kernel("lmu_filter_gradient", [POINTER, INT, POINTER, POINTER, LONG, LONG, INT])
_attend = Kernel("lmu_attend", [POINTER] * 3 + [FLOAT, POINTER] + [LONG] * 2 + [INT] * 3)
_add_product = Kernel("lmu_add_product", [POINTER] * 3 + [LONG] * 4 + [INT])
_attend_back = Kernel("lmu_attend_back", [POINTER] * 3 + [FLOAT] + [POINTER] * 3 + [LONG] * 2 + [INT] * 3)


@functools.lru_cache(maxsize=32)
def _twiddles(size: int) -> Tensor:
    table = torch.empty(2 * size)
    library().lmu_twiddles(POINTER(address(table)), LONG(size))
    return table


class Convolution:
    """Every channel with every filter (eq. 7); made once per forward or backward pass."""

    def __init__(self, filters_kn: Tensor, d: int) -> None:
        self.k, self.n = filters_kn.shape
        self.d = d
        self.tile = library().lmu_tile()
        self.tiles = -(-self.n // self.tile)
        self.size = 2 * self.tile
        while self.size < 2 * self.n:
            self.size *= 2
        self.table = _twiddles(self.size)
        self.spectra_kf2 = filters_kn.new_empty(self.k, self.size, 2)
        _spectrum(filters_kn, self.spectra_kf2, self.table, self.n, self.size, self.k)
        self.sums: Tensor | None = None

    def sequences(self) -> int:
        """How many sequences to transform at a time, so that all threads have as much to do.

        A thread takes two vectors of channels at once: those of two sequences where one has an odd number of them.
        """
        vectors = -(-self.d // library().lmu_lanes())
        return threads() * (1 + vectors % 2)

    def empty(self, batch: int) -> Tensor:
        """Memory for y [b, t, d, k, c]."""
        return self.spectra_kf2.new_empty(batch, self.tiles, self.d, self.k, self.tile)

    def forward(self, x_bnd: Tensor, y_btdkc: Tensor) -> None:
        sizes = (len(x_bnd), self.n, self.size, self.d, self.k)
        _convolve(x_bnd, self.spectra_kf2, self.table, y_btdkc, *sizes, threads())

    def backward(self, x_bnd: Tensor, dy_btdkc: Tensor, dx_bnd: Tensor) -> None:
        if self.sums is None:
            self.sums = self.spectra_kf2.new_zeros(threads(), self.k, self.size, 2)
        tensors = (x_bnd, self.spectra_kf2, self.table, dy_btdkc, dx_bnd, self.sums)
        _correlate(*tensors, len(x_bnd), self.n, self.size, self.d, self.k, len(self.sums))

    def filter_gradient(self) -> Tensor:
        assert self.sums is not None
        dfilters_kn = self.sums.new_empty(self.k, self.n)
        _filter_gradient(self.sums, len(self.sums), dfilters_kn, self.table, self.n, self.size, self.k)
        return dfilters_kn


def attend(y_btdkc: Tensor, bias_k: Tensor, p_i: Tensor, scale: float, m_bnd: Tensor) -> None:
    """Eqs. 8–10 for all tokens; writes m."""
    _attend(y_btdkc, bias_k, p_i, scale, m_bnd, *m_bnd.shape, len(p_i), threads())


def attend_back(
    y_btdkc: Tensor, bias_k: Tensor, p_i: Tensor, scale: float, dm_bnd: Tensor, dy_btdkc: Tensor
) -> tuple[Tensor, Tensor]:
    """Writes dy, which may be y itself; returns dbias and dp."""
    sums = y_btdkc.new_zeros(threads(), 4 * len(p_i))
    _attend_back(y_btdkc, bias_k, p_i, scale, dm_bnd, dy_btdkc, sums, *dm_bnd.shape, len(p_i), len(sums))
    total = sums.sum(0)
    return total[: len(bias_k)], total[len(bias_k) :]


def add_product(onto_bkd: Tensor, W_kq: Tensor, m_bqd: Tensor) -> Tensor:
    """onto + W m, for every sequence; without gradients."""
    out_bkd = torch.empty(len(m_bqd), len(W_kq), m_bqd.shape[2]).copy_(onto_bkd)
    _add_product(W_kq, m_bqd, out_bkd, len(m_bqd), *W_kq.shape, m_bqd.shape[2], threads())
    return out_bkd
