"""Multipliers: read between measured budgets, bounded beyond them, infinite where a law has a floor."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.analysis.fit import fit
from lmu_scaling.analysis.multipliers import at_main_budget, first_reach, paper_multipliers
from lmu_scaling.analysis.reference import load_paper, transformer_law
from lmu_scaling.analysis.table import table
from tests.synthetic import FIT, PAPER, Design, Law, write_results

PRINTED = load_paper(Path(PAPER))


@settings(deadline=None, max_examples=50)
@given(target=st.floats(0.0, 1.0))
def test_reading_off_a_line_is_exact_inside_and_bounded_outside(target):
    log_x, y = np.log([0.5, 1.0, 2.0, 4.0]), np.array([[0.9, 0.7, 0.5, 0.3]])
    found = first_reach(log_x, y, np.array([target]))[0]
    if target < 0.3:
        assert found == np.inf
    elif target > 0.9:
        assert found == -np.inf
    else:
        assert np.interp(found, log_x, y[0]) == pytest.approx(target, abs=1e-9)


def test_the_first_budget_that_reaches_the_loss_counts_even_if_a_later_one_does_not():
    y = np.array([[0.9, 0.4, 0.6, 0.3]])
    assert first_reach(np.arange(4.0), y, np.array([0.5]))[0] == pytest.approx(0.8)


def test_budgets_may_come_in_any_order():
    y = np.array([[0.3, 0.9, 0.5]])
    assert first_reach(np.array([3.0, 1.0, 2.0]), y, np.array([0.5]))[0] == pytest.approx(2.0)


def test_the_printed_fits_imply_an_infinite_multiplier_at_55k():
    rows = {(row["variant"], row["size"]): row for row in paper_multipliers(PRINTED, "kaplan_comment")}
    for variant in ("paper_lmu", "paper_lmu_attention"):
        row = rows[variant, "55k"]
        assert row["value"] == np.inf
        assert row["low"] == np.inf, "no rounding of the exponents makes it finite"
        assert row["infinite_share"] == 1
        assert row["text"] == "∞"
    assert np.isfinite(rows["paper_lmu", "1M"]["low"])
    assert rows["paper_lmu", "1M"]["low"] > 10


def made(tmp_path, **changes):
    values = {"variants": ("lmu", "transformer"), "widths": (16, 24, 32), "seed_noise": 1e-4, "sequence_noise": 0.004}
    design = Design(**values | {"sequences": 40} | changes)
    runs = write_results(tmp_path, design)
    folder = tmp_path / "analysis"
    table(tmp_path, runs, folder / "runs.csv", folder / "sensitivity.csv", folder / "history.parquet")
    outputs = {
        "fits": "fits.json",
        "curves": "curves.csv",
        "multipliers": "multipliers.csv",
        "frontier": "frontier.csv",
    }
    fit(folder / "runs.csv", tmp_path, **FIT, **{key: folder / name for key, name in outputs.items()})
    return pd.read_csv(folder / "multipliers.csv"), design


def test_a_token_multiplier_of_three_is_found(tmp_path):
    """The transformer's B is such that it needs three times the tokens of the LMU, at every size."""
    both = {"E": 2.0, "A": 2.0, "a": 0.3, "b": 0.5}
    laws = {"lmu": Law(B=500.0, **both), "transformer": Law(B=500.0 * 3**0.5, **both)}
    table, _ = made(tmp_path, laws=laws, budgets={"transformer": (0.5, 2.0, 4.0)})
    rows = table[(table["variant"] == "lmu") & (table["quantity"] == "tokens") & (table["against"] == "transformer")]
    np.testing.assert_allclose(rows["value"], 3.0, rtol=0.05)  # the curve between budgets 2 and 4 is bent
    assert (rows["low"] <= rows["value"]).all()
    assert (rows["value"] <= rows["high"]).all()
    assert not rows["beyond"].any()


def test_a_run_of_another_budget_is_matched_by_its_own_tokens_and_peers(tmp_path):
    """At every budget the transformer needs three times the tokens; its peers in N have the same budget."""
    both = {"E": 2.0, "A": 2.0, "a": 0.3, "b": 0.5}
    laws = {"lmu": Law(B=500.0, **both), "transformer": Law(B=500.0 * 3**0.5, **both)}
    budgets = {"lmu": (0.5,), "transformer": (0.25, 0.5, 2.0, 4.0)}
    table, _ = made(tmp_path, laws=laws, budgets=budgets)
    rows = table[(table["variant"] == "lmu") & (table["against"] == "transformer")]
    assert sorted(set(rows["multiple"])) == [0.5, 1.0]
    tokens = rows[rows["quantity"] == "tokens"]
    np.testing.assert_allclose(tokens["value"], 3.0, rtol=0.05)
    half = tokens[tokens["multiple"] == 0.5]
    assert half["largest"].tolist() == [8.0] * 3, "4 times the main budget, 8 times its own"
    peers = rows[rows["quantity"] == "parameters"].groupby("multiple")["largest"].max()
    assert peers.nunique() == 1, "the sizes of its own budget"
    assert at_main_budget(table)["multiple"].eq(1).all()
    assert len(at_main_budget(table.drop(columns="multiple"))) == len(table), "a file of an older version"


def test_past_the_largest_budget_there_is_a_bound_and_no_number(tmp_path):
    both = {"E": 2.0, "A": 20.0, "a": 0.3, "b": 0.5}
    laws = {"lmu": Law(B=500.0, **both), "transformer": Law(B=500.0 * 9**0.5, **both)}
    table, _ = made(tmp_path, laws=laws, budgets={"transformer": (2.0, 4.0)})
    rows = table[(table["variant"] == "lmu") & (table["quantity"] == "tokens") & (table["against"] == "transformer")]
    assert rows["beyond"].all()
    assert (rows["value"] == 4).all()
    assert np.isinf(rows["high"]).all()
    assert (rows["text"] == "> 4").all()


def test_a_better_baseline_gives_an_upper_bound(tmp_path):
    both = {"E": 2.0, "a": 0.3, "B": 500.0, "b": 0.5}
    laws = {"lmu": Law(A=40.0, **both), "transformer": Law(A=20.0, **both)}
    table, _ = made(tmp_path, laws=laws, budgets={})
    rows = table[(table["variant"] == "lmu") & (table["quantity"] == "tokens")]
    assert rows["below"].all()
    assert (rows["text"] == "< 1").all()


def test_losses_of_another_vocabulary_are_not_held_against_kaplan(tmp_path):
    table, _ = made(tmp_path, budgets={})
    assert set(table.loc[table["against"] == "kaplan", "variant"]) == {"paper_lmu", "paper_lmu_attention"}


def test_against_kaplan_the_law_itself_is_inverted(tmp_path):
    """Runs on Kaplan's own law have a multiplier of one, but for the counts: exact N here, matrices only there."""
    law = transformer_law(PRINTED)
    design = {"vocab": 50257, "context": 1024, "batch": 512, "steps": 25000, "widths": (48, 92), "budgets": {}}

    class OnKaplan(Law):
        def loss(self, n, tokens):
            return float(law.loss(n, tokens / law.batch_tokens))

    table, _ = made(tmp_path, **design, laws={"lmu": OnKaplan(), "transformer": OnKaplan()})
    rows = table[(table["against"] == "kaplan") & (table["variant"] == "transformer")]
    tokens = rows[rows["quantity"] == "tokens"]
    assert (tokens["value"] > 1).all()
    assert (tokens["value"] < 1.5).all()
    parameters = rows[rows["quantity"] == "parameters"]
    np.testing.assert_allclose(parameters["value"], [56640 / 55296, 205712 / 203136], rtol=5e-3)


def test_runs_of_different_precision_have_no_multiplier(tmp_path):
    found, _ = made(tmp_path / "mixed", precision={"lmu": "bfloat16"})
    assert not (found["against"] == "transformer").any()
    assert "differ in precision" in (tmp_path / "mixed/analysis/fits.json").read_text()
    alike, _ = made(tmp_path / "alike", precision={"lmu": "bfloat16", "transformer": "bfloat16"})
    assert (alike["against"] == "transformer").sum() == 3 * 3
    assert "differ in precision" not in (tmp_path / "alike/analysis/fits.json").read_text()
