"""Measured growth: forms differ in memory, slopes are fitted right, a failed child is explained. No timing here."""

import os

import numpy as np
import pandas as pd
import pytest
import torch

from lmu_scaling.analysis.complexity import (
    LAYERS,
    QUANTITIES,
    RESOLUTION,
    complexity,
    fit_slopes,
    in_child,
    make,
    measure,
    slope,
)
from lmu_scaling.errors import ResultsError
from lmu_scaling.sections import Complexity

CPU = torch.device("cpu")


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_slopes_of_powers_are_their_exponents(exponent):
    n = np.array([256.0, 512, 1024, 2048])
    found = slope(n, 3 * n**exponent)
    assert found["slope"] == pytest.approx(exponent, abs=1e-9)
    assert found["low"] <= found["slope"] <= found["high"]


def test_only_the_longest_three_octaves_count_and_small_memory_is_level():
    n = np.array([16, 256, 512, 1024, 2048])
    rows = [
        {"layer": layer, "n": k, "seconds": 1.0 if k == 16 else k**2.0, "bytes": min(k, 1000)}
        | {"training_seconds": np.nan if k == 16 else 3.0 * k**2, "training_bytes": RESOLUTION * k}
        for layer in LAYERS
        for k in n
    ]
    found = pd.DataFrame(fit_slopes(pd.DataFrame(rows)))
    compute = found[found["quantity"] == "compute"]
    np.testing.assert_allclose(compute["slope"], 2.0)
    assert (found.loc[found["quantity"] == "memory", "slope"] == 0).all()
    np.testing.assert_allclose(found.loc[found["quantity"] == "training_compute", "slope"], 2.0)
    np.testing.assert_allclose(found.loc[found["quantity"] == "training_memory", "slope"], 1.0)
    assert found.loc[(found["layer"] == "lmu_parallel") & (found["quantity"] == "compute"), "expected"].iloc[0] > 1.1


@torch.inference_mode()
def test_materialised_and_fused_attention_compute_the_same():
    full, fused = (make(name, 40, 16, 10, CPU)() for name in ("attention", "attention_flash"))
    torch.testing.assert_close(full[None], fused, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peak memory needs Linux")  # noqa: PTH110
def test_peak_memory_sees_the_attention_matrix_and_not_the_recurrent_stream():
    def peak(layer, n):
        return in_child(lambda: measure(layer, n, 16, 10, 1, CPU))["bytes"]

    matrix = 4 * 1536**2
    assert peak("attention", 1536) >= 2 * matrix
    assert peak("attention_flash", 1536) < matrix
    assert peak("lmu_recurrent", 1536) < RESOLUTION


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peak memory needs Linux")  # noqa: PTH110
def test_back_propagation_through_the_recurrent_stream_keeps_every_step():
    short, long = (
        in_child(lambda n=n: measure("lmu_recurrent", n, 16, 20, 1, CPU, training=True))["bytes"] for n in (256, 1024)
    )
    assert long > 1024 * 4 * 3 * 2 * 16  # Q, K and V of every token, at the least
    assert 3 < long / short < 5


@pytest.mark.parametrize("layer", LAYERS)
def test_training_reaches_the_input_through_every_token(layer, monkeypatch):
    inputs = []
    random = torch.randn

    def kept(*shape, **options):
        made = random(*shape, **options)
        inputs.append(made)
        return made

    monkeypatch.setattr(torch, "randn", kept)
    make(layer, 24, 8, 10, CPU, training=True)()
    gradient = inputs[-1].grad
    assert gradient.shape == (1, 24, 8)
    assert (gradient.abs().sum(dim=2) > 0).all()


def test_recurrent_and_parallel_training_have_the_same_gradient(monkeypatch):
    gradients, random = [], torch.randn
    for layer in ("lmu_parallel", "lmu_recurrent"):
        inputs = []
        monkeypatch.setattr(torch, "randn", lambda *s, **o: inputs.append(random(*s, **o)) or inputs[-1])  # noqa: B023
        make(layer, 24, 8, 10, CPU, training=True)()
        gradients.append(inputs[-1].grad)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_a_child_that_dies_is_explained():
    with pytest.raises(ResultsError, match="ended with status") as error:
        in_child(lambda: os._exit(9))
    assert "too little memory" in error.value.remedy


def test_files_hold_every_layer_and_length(tmp_path):
    settings = Complexity(lengths=[64, 32, 128], d=8, q=10, repeats=1)
    complexity(settings, tmp_path / "c.csv", tmp_path / "s.csv", device="cpu")
    points, slopes = pd.read_csv(tmp_path / "c.csv"), pd.read_csv(tmp_path / "s.csv")
    assert len(points) == 4 * 3
    assert (points["seconds"] > 0).all()
    assert set(zip(slopes["layer"], slopes["quantity"], strict=True)) == {
        (layer, quantity) for layer in LAYERS for quantity in QUANTITIES
    }
