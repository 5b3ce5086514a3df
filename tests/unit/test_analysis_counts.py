"""Counts: formulas against the built network, literal equations against the program's own layers (Table 2)."""

import numpy as np
import pandas as pd
import pytest
import torch

from lmu_scaling.analysis.counts import counts, measure_layers
from lmu_scaling.analysis.flops import count_flops, real_fft_flops
from lmu_scaling.analysis.largest import largest
from lmu_scaling.models import resolve, variants
from lmu_scaling.models.network import build


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    root = tmp_path_factory.mktemp("counts")
    models = {
        f"{variant}-d{d}": resolve(variant, d, context, 300)
        for variant in variants()
        for d, context in ((16, 64), (48, 128))
    }
    counts(models, root / "counts.csv", root / "table2.csv")
    return pd.read_csv(root / "counts.csv"), pd.read_csv(root / "table2.csv")


def test_every_variant_counts_as_built(tables):
    models, _ = tables
    assert set(models["variant"]) == set(variants())
    assert (models["n_exact"] == models["n_exact_measured"]).all()
    assert (models["n_total"] == models["n_total_measured"]).all()


def test_parameters_of_each_operation_are_those_of_the_layer(tables):
    _, rows = tables
    assert (rows["parameters"] == rows["parameters_measured"]).all()


def test_flops_of_each_operation_follow_table_2(tables):
    _, rows = tables
    known = rows.dropna(subset=["flops"])
    np.testing.assert_allclose(known["flops_measured"], known["flops"], rtol=5e-3)
    exact = known[~known["operation"].str.startswith("LMU")]
    assert (exact["flops_measured"] == exact["flops"]).all()


def test_the_largest_model_of_the_paper_has_1004460_flops_in_the_first_row():
    """Table 2 at (d, q, q') = (204, 250, 25), n = 1024; the measurement has n + 1 frequencies where Table 2 has n."""
    network = build(resolve("lmu", 204, 1024, 300, q=250), seed=0, compile="off").double()
    first = measure_layers(network)[1].flops["LMU + Q + K + V"]
    products_beyond = 6 * 3 * 204 * 25 / 1024
    assert first == pytest.approx(1_004_460 + products_beyond, abs=1)


def test_the_appendix_at_the_largest_model_of_the_paper(tmp_path):
    """Golden: L_SS, L_RK (r = 4) and L_FFT by hand at (204, 250, 1024); L_FFT is d(61q + 55) there."""
    largest(tmp_path / "table2.csv", tmp_path / "implementations.csv")
    costs = pd.read_csv(tmp_path / "implementations.csv").set_index("implementation")
    values = costs["flops"].tolist()
    assert values[:4] == [25_602_000, 1_224_000, 3_122_220, 3_122_220]
    assert values[4] > 190 * values[5], "the printed reduced order counts d = 204 twice"
    counted = costs.dropna(subset=["flops_counted"])
    np.testing.assert_allclose(counted["flops_counted"], counted["flops"], rtol=1e-3)
    rows = pd.read_csv(tmp_path / "table2.csv")
    first = rows[rows["operation"] == "LMU + Q + K + V"]
    assert set(first["variant"]) == {"lmu", "lmu_attention"}
    assert (first["flops"] == 1_004_460).all()
    assert (rows["parameters"] == rows["parameters_measured"]).all()
    known = rows.dropna(subset=["flops"])
    np.testing.assert_allclose(known["flops_measured"], known["flops"], rtol=1e-3)


def test_reduced_order_equals_full_order_and_costs_less(tables):
    models, _ = tables
    memories = models.dropna(subset=["q"])
    assert len(memories)
    assert (memories["reduced_order_error"] < 1e-9).all()
    assert (memories["flops_reduced_order"] < memories["flops_full_order"]).all()
    assert models.loc[models["q"].isna(), "reduced_order_error"].isna().all()


def test_products_and_transforms_are_counted():
    a, b, bias = torch.randn(3, 5), torch.randn(5, 7), torch.randn(7)
    assert count_flops(lambda: a @ b)[1] == 2 * 3 * 5 * 7
    assert count_flops(lambda: torch.nn.functional.linear(a, b.T, bias))[1] == 2 * 3 * 5 * 7
    assert count_flops(lambda: torch.randn(4, 3, 5) @ torch.randn(4, 5, 2))[1] == 4 * 2 * 3 * 5 * 2
    assert count_flops(lambda: torch.fft.rfft(torch.randn(6, 16)))[1] == 6 * real_fft_flops(16)
    assert count_flops(lambda: torch.fft.irfft(torch.randn(6, 9, dtype=torch.complex64), n=16))[1] == 6 * 160
    product = torch.randn(4, dtype=torch.complex64)
    assert count_flops(lambda: product * product)[1] == 24
    assert count_flops(lambda: a * a)[1] == 0
