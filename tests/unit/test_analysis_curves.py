"""Curves for the figures: their bands leave out the shift that a common test text gives to all models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lmu_scaling.analysis.bootstrap import make_cells
from lmu_scaling.analysis.curves import all_curves
from lmu_scaling.analysis.reference import load_paper

SIZES, DOCUMENTS, DRAWS = (6e3, 14e3, 25e3), 12, 400


def curves(variants: tuple[str, ...], own_noise: float) -> pd.DataFrame:
    """Models whose losses vary with the document, alike for all, and by `own_noise` in each document for itself."""
    rng = np.random.default_rng(0)
    difficulty = rng.normal(0, 0.4, DOCUMENTS)
    rows, blocks = [], []
    for variant in variants:
        for n in SIZES:
            for seed in (1, 2):
                losses = 10 * n**-0.07 + rng.normal(0, 0.002) + difficulty + rng.normal(0, own_noise, DOCUMENTS)
                blocks.append(losses)
                row = {"run": f"{variant}-{n:g}-s{seed}", "variant": variant, "size": f"{n:g}", "multiple": 1.0}
                row |= {"seed": seed, "n_exact": n, "n_kaplan": n, "tokens": 1e6, "steps": 1}
                row |= {"flops_per_token": 1.0, "flops_per_token_body": 1.0, "test_loss": losses.mean()}
                rows.append(row)
    sums = np.array(blocks)
    cells = make_cells(pd.DataFrame(rows), (sums, np.ones_like(sums)), DRAWS, 0.95, seed=0)
    found = all_curves(cells, load_paper())
    return found[found["kind"] == "fit"]


def width(found: pd.DataFrame) -> float:
    return float((found["high"] - found["low"]).median())


def test_what_the_text_does_to_all_models_alike_is_in_no_band_and_is_reported():
    found = curves(("lmu", "transformer"), own_noise=0.0)
    assert found["common"].median() == pytest.approx(1.96 * 0.4 / DOCUMENTS**0.5, rel=0.6)
    assert width(found) < 0.2 * found["common"].median()


def test_what_differs_between_models_stays_in_the_bands():
    assert width(curves(("lmu", "transformer"), own_noise=0.4)) > 3 * width(curves(("lmu", "transformer"), 0.0))


def test_a_single_variant_keeps_its_whole_band():
    found = curves(("lmu",), own_noise=0.0)
    assert (found["common"] == 0).all()
    assert width(found) > 0.3
