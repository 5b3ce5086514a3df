"""All of analysis/ on synthetic runs: files, columns and verdicts at the embedded scale."""

import json
import re

import pandas as pd
import pytest

from lmu_scaling.analysis.claims.common import Verdict
from tests.synthetic import REPOSITORY, Design, write_experiment

COLUMNS = {
    "runs.csv": "run variant size multiple seed d n_exact n_kaplan n_total context vocab batch steps tokens epochs "
    "learning_rate validation_loss test_loss test_se bits_per_byte flops_per_token flops seconds spec_hash",
    "history.parquet": "run variant size multiple seed step tokens loss learning_rate grad_norm validation_loss",
    "per_token.parquet": "variant size multiple split axis position first last mean low high count",
    "per_token_fits.csv": "variant size multiple axis E A a plateau plateau_low plateau_high early late",
    "curves.csv": "kind name multiple n loss low high",
    "multipliers.csv": "quantity variant against size multiple n loss value low high infinite_share beyond",
    "frontier.csv": "variant flops loss low high n n_low n_high tokens edge",
    "counts.csv": "variant label size d context vocab blocks ffn heads q q_reduced theta target n_exact n_kaplan "
    "n_embedding n_positions n_total flops_forward flops_head flops_training",
    "table2.csv": "variant size layer operation repeats parameters_formula parameters parameters_measured "
    "flops_formula flops flops_measured",
    "complexity.csv": "layer n seconds bytes",
    "complexity_slopes.csv": "layer quantity slope low high stated",
}


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    root = tmp_path_factory.mktemp("results") / "toy"
    write_experiment(root, Design(widths=(16, 20, 24, 32), sequences=60))
    return root / "analysis"


@pytest.mark.parametrize("name", COLUMNS)
def test_each_table_has_the_columns_of_the_contract(analysis, name):
    frame = pd.read_csv(analysis / name) if name.endswith("csv") else pd.read_parquet(analysis / name)
    assert len(frame) or name == "frontier.csv"  # no joint law is identified here
    assert set(COLUMNS[name].split()) <= set(frame.columns)


def test_fits_name_every_variant_and_carry_intervals(analysis):
    fits = json.loads((analysis / "fits.json").read_text())
    power = {(e["variant"], e["multiple"]): e for e in fits["power"]}
    assert {variant for variant, _ in power} == {"lmu", "lmu_attention", "transformer", "lstm"}
    for entry in power.values():
        assert entry["alpha_low"] <= entry["alpha"] <= entry["alpha_high"]
        assert entry["converged"]
    joint = {e["variant"]: e for e in fits["joint"]}
    assert joint["transformer"]["fitted"]
    assert not joint["lmu"]["fitted"]
    assert "token budgets" in joint["lmu"]["note"]


def test_every_claim_has_a_verdict_and_scaling_claims_are_not_testable_at_toy_scale(analysis):
    entries = json.loads((analysis / "claims.json").read_text())
    assert [e["id"] for e in entries] == [f"C{i}" for i in range(1, 13)]
    assert {e["verdict"] for e in entries} <= set(Verdict)
    for entry in entries[:8]:
        assert entry["verdict"] == Verdict.NOT_TESTABLE
        assert entry["reason"].startswith("Not at the claim's scale: ")
    assert {e["id"]: e["verdict"] for e in entries[9:]} == {
        "C10": "reproduced",
        "C11": "reproduced",
        "C12": "not reproduced",
    }
    assert "infinite at every N" in entries[4]["reason"]


def test_multipliers_are_bounded_by_what_was_measured(analysis):
    table = pd.read_csv(analysis / "multipliers.csv")
    ours = table[table["against"] == "transformer"]
    assert (ours["value"] <= ours["largest"] * (1 + 1e-9)).all()
    assert (ours.loc[ours["beyond"], "text"].str.startswith(">")).all()
    printed = table[table["variant"] == "paper_lmu"].set_index("size")
    assert printed.loc["55k", "value"] == float("inf")
    assert printed.loc["55k", "low"] == float("inf")


@pytest.mark.parametrize("name", COLUMNS)
def test_results_readme_explains_every_column(analysis, name):
    readme = (REPOSITORY / "results" / "README.md").read_text("utf-8")
    frame = pd.read_csv(analysis / name) if name.endswith("csv") else pd.read_parquet(analysis / name)
    described = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", readme))))
    implied = {f"{base}_{end}" for base in ("E", "A", "a") for end in ("low", "high")}
    own = {"parameters_formula", "parameters", "parameters_measured", "flops_formula", "flops_measured", "operation"}
    sizes = {"label", "blocks", "ffn", "heads", "q_reduced", "theta", "fitted"}
    assert set(frame.columns) - described - implied - own - sizes == set()
