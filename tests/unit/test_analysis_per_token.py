"""Per-token loss: the law that made a curve is recovered, and plateaus are distinguished from slopes."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from lmu_scaling.analysis.per_token import Curve, describe, per_token
from lmu_scaling.analysis.reference import load_paper, per_token_laws
from lmu_scaling.errors import ResultsError
from lmu_scaling.evaluation.positions import bin_edges
from tests.synthetic import PAPER, PER_TOKEN, Design, Law, write_results


def curve_of(law, n=1024, noise=0.0, draws=200):
    edges = bin_edges(n, 2)
    losses = law(np.arange(1, n + 1.0))
    mean = np.array([losses[lo:hi].mean() for lo, hi in pairwise(edges)])
    drawn = mean + np.random.default_rng(0).normal(0, noise, (draws, len(mean)))
    return Curve(edges, mean, drawn, np.diff(edges) * 1000)


@pytest.mark.parametrize("index", range(6))
def test_kaplans_per_token_laws_are_recovered(index):
    _, law = per_token_laws(load_paper(PAPER))[index]
    found = describe(curve_of(law.loss), 0.95)
    assert found["E"] == pytest.approx(law.e, abs=0.02)  # bins average over a bent curve
    assert found["a"] == pytest.approx(law.exponent, abs=0.01)


def test_the_plateau_of_kaplans_smallest_law_is_the_number_behind_the_rule_for_flatness():
    _, law = per_token_laws(load_paper(PAPER))[0]
    found = describe(curve_of(law.loss), 0.95)
    position = np.arange(1, 1025)
    losses = law.loss(position)
    expected = losses[64:128].mean() - losses[512:1024].mean()
    assert found["plateau"] == pytest.approx(expected, abs=1e-9)
    assert expected == pytest.approx(0.23, abs=0.01)
    assert (found["early"], found["late"]) == ("65–128", "513–1024")


def test_a_curve_that_flattens_at_100_tokens_has_no_plateau_gain():
    found = describe(curve_of(lambda t: 4 + 3 / np.minimum(t, 100.0), noise=0.005), 0.95)
    assert found["plateau_low"] < 0.01
    assert found["plateau_high"] < 0.06


def test_a_short_context_has_no_plateau_statistic():
    assert np.isnan(describe(curve_of(lambda t: 4 + 1 / t, n=128), 0.95)["plateau"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("per-token")
    laws = {"lmu": Law(context_exponent=1.2), "transformer": Law(context_exponent=0.4)}
    design = Design(("lmu", "transformer"), (16,), budgets={}, laws=laws, context=1024, sequences=100)
    return root, write_results(root, design)


def run(made, out, **changes):
    root, runs = made
    per_token(root, runs, **PER_TOKEN | changes, curves=out / "curves.parquet", fits=out / "fits.csv")
    return pd.read_parquet(out / "curves.parquet"), pd.read_csv(out / "fits.csv")


@pytest.mark.parametrize("per_octave", [1, 2, 3, 4])
def test_any_number_of_bins_per_octave_shows_the_same_curve(made, tmp_path, per_octave):
    curves, _ = run(made, tmp_path, bins_per_octave=per_octave)
    window = curves[(curves["axis"] == "window") & (curves["variant"] == "lmu")]
    assert (window["low"] <= window["mean"]).all()
    assert (window["mean"] <= window["high"]).all()
    assert window["last"].iloc[-1] == 1024
    overall = np.average(window["mean"], weights=window["count"])
    raw = pd.read_parquet(made[0] / "evaluation" / made[1][0] / "per_token.parquet")
    raw = raw[(raw["split"] == "test") & (raw["axis"] == "window")]
    assert overall == pytest.approx(raw["mean"].mean(), abs=0.1)


def test_the_transformer_keeps_gaining_where_the_lmu_is_flat(made, tmp_path):
    _, fits = run(made, tmp_path)
    plateau = fits[fits["axis"] == "window"].set_index("variant")
    assert plateau.loc["lmu", "plateau_high"] < plateau.loc["transformer", "plateau_low"]


def test_seeds_whose_curves_differ_in_shape_widen_the_plateaus_interval(tmp_path):
    """A common level cancels in it; what one seed gains late in the context and another does not, must not."""
    design = Design(("lmu",), (16, 24, 32), budgets={}, context=1024, sequences=100)
    made = tmp_path, write_results(tmp_path, design)
    widths = []
    for tilt in (0.0, 0.1):
        for name in made[1]:
            path = tmp_path / "evaluation" / name / "per_token.parquet"
            frame = pd.read_parquet(path)
            frame.loc[frame["position"] > 512, "mean"] += tilt if name.endswith("s0") else -tilt
            frame.to_parquet(path)
        _, fits = run(made, tmp_path)
        window = fits[fits["axis"] == "window"]
        widths.append((window["plateau_high"] - window["plateau_low"]).mean())
    assert widths[1] > widths[0] + 0.2


def test_a_diverged_run_is_left_out_and_nothing_left_is_an_error(made, tmp_path):
    root = tmp_path / "copy"
    runs = write_results(root, Design(("lmu",), (16,), seeds=(0,), budgets={}, sequences=10))
    path = root / "evaluation" / runs[0] / "per_token.parquet"
    frame = pd.read_parquet(path)
    frame["mean"] = np.nan
    frame.to_parquet(path)
    with pytest.raises(ResultsError, match="no run has a usable per-token loss"):
        per_token(root, runs, **PER_TOKEN, curves=tmp_path / "c.parquet", fits=tmp_path / "f.csv")
