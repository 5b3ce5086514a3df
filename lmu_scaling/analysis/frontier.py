"""The lowest loss for a training compute, by a variant's joint law, and the size that reaches it (isoFLOP optimum).

Along a compute C the law E + A·N^-a + B·D^-b is minimised over N, with D = C / f(N). f(N) are training FLOPs per token,
head included, interpolated between the sizes that were trained. Only sizes and token counts inside the range that was
trained are considered; `edge` says where one of its bounds decides, so that the true optimum may lie beyond it.

Axes: b bootstrap draw, c compute, k size.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells
from lmu_scaling.analysis.curves import common_shift
from lmu_scaling.analysis.laws import SumFit

Array = NDArray[np.float64]
POINTS, SIZES = 40, 200  # of the grids of compute and of N
COLUMNS = ["variant", "flops", "loss", "low", "high", "n", "n_low", "n_high", "tokens", "edge"]


def frontier(cells: Cells, laws: dict[str, tuple[SumFit, SumFit]]) -> pd.DataFrame:
    """Rows for each variant whose joint law is identified: `laws` has its estimate and its draws.

    As in `curves`, the intervals of the loss leave out the shift that the common test text gives to all models.
    """
    frames = [_of_variant(cells, variant, *law) for variant, law in laws.items()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=COLUMNS)


def _of_variant(cells: Cells, variant: str, point: SumFit, drawn: SumFit) -> pd.DataFrame:
    rows = cells.frame.loc[cells.select(variant, multiple=None)]
    n_k = np.geomspace(rows["n"].min(), rows["n"].max(), SIZES)
    sizes = rows.drop_duplicates("n").sort_values("n")
    cost_k = np.exp(np.interp(np.log(n_k), np.log(sizes["n"].astype(float)), np.log(sizes["flops_per_token"])))
    fewest, most = rows["tokens"].min(), rows["tokens"].max()
    flops_c = np.geomspace(cost_k[0] * fewest, cost_k[-1] * most, POINTS + 2)[1:-1]
    shift_b = common_shift(cells)
    found = []
    for flops in flops_c:
        possible = np.flatnonzero((flops / cost_k >= fewest) & (flops / cost_k <= most))
        n, tokens = n_k[possible], flops / cost_k[possible]
        best, loss = _lowest(point, n, tokens)
        drawn_best, drawn_loss = _lowest(drawn, n, tokens)
        low, high = cells.interval(drawn_loss * np.exp(-shift_b))
        n_low, n_high = cells.interval(n[drawn_best])
        at = int(best[0])
        edge = "smallest" if at == 0 else "largest" if at == len(n) - 1 else ""
        row = (variant, flops, loss[0], float(low), float(high), n[at], float(n_low), float(n_high), tokens[at], edge)
        found.append(dict(zip(COLUMNS, row, strict=True)))
    return pd.DataFrame(found, columns=COLUMNS)


def _lowest(law: SumFit, n_k: Array, tokens_k: Array) -> tuple[NDArray[np.int64], Array]:
    """Index of the best size and its loss, in each draw."""
    E, A, B = (law.coefficients[:, [j]] for j in range(3))
    loss_bk = E + A * n_k ** -law.exponents[:, [0]] + B * tokens_k ** -law.exponents[:, [1]]
    best = loss_bk.argmin(axis=1)
    return best, loss_bk[np.arange(len(best)), best]
