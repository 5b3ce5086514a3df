"""Variants are compared at equal N whatever their losses do."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmu_scaling.analysis.bootstrap import Cells
from lmu_scaling.analysis.comparisons import compare


def cells(losses: dict[str, list[float]]) -> Cells:
    rows = [
        {"variant": variant, "size": size, "multiple": 1.0, "n": n, "tokens": 1e6, "seeds": 1}
        for variant in losses
        for size, n in (("s", 1000), ("m", 4000))
    ]
    point = np.log([loss for values in losses.values() for loss in values])
    return Cells(pd.DataFrame(rows), point, np.repeat(point[None], 100, axis=0), {}, 0.95)


def test_a_variant_whose_loss_rises_with_size_is_compared_too() -> None:
    entry = compare(cells({"lmu": [5.0, 4.5], "transformer": [5.2, 5.3]}), "lmu", "transformer")
    assert entry is not None
    expected = np.sqrt(5.2 * 5.3) - np.sqrt(5.0 * 4.5)  # at the geometric mean of two sizes
    assert np.isclose(entry["difference"], expected)
    assert np.isclose(entry["low"], expected) and np.isclose(entry["high"], expected)
