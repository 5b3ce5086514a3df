"""Claims: each rule confirms, refutes and abstains; at the paper's scale synthetic truth gets the right verdict."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lmu_scaling.analysis import claims as package
from lmu_scaling.analysis.claims.c09_growth_with_length import SLOPES
from lmu_scaling.analysis.claims.common import Evidence, Verdict, fill
from lmu_scaling.analysis.claims.judge import claims, judge_all, load_claims
from lmu_scaling.analysis.fit import fit
from lmu_scaling.analysis.per_token import per_token
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import read_frame, read_table
from lmu_scaling.fingerprint import reachable
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.runtime import read_json
from tests.synthetic import FIT, PAPER, PER_TOKEN, Design, Law, write_results, write_table

PAPERS_LAWS = {
    "lmu": Law(A=1.95e14**0.072, a=0.072, context_exponent=1.2),
    "lmu_attention": Law(A=3.80e14**0.069, a=0.069, context_exponent=0.4),
    "transformer": Law(A=1.1 * 1.95e14**0.072, a=0.072, context_exponent=0.4),
    "lstm": Law(A=1.21 * 1.95e14**0.072, a=0.072),
}
AT_SCALE = Design(
    widths=(48, 64, 92, 144, 204),
    seeds=(0, 1),
    budgets={},
    context=1024,
    vocab=50257,
    batch=512,
    steps=25000,
    seed_noise=0.002,
    sequences=240,
    documents=60,
    train_tokens=2e10,
    corpus="openwebtext2",
    laws=PAPERS_LAWS,
    seed=1,
)


def evidence(root, design, slopes=None):
    runs = write_results(root, design)
    folder = write_table(root, runs, design)
    main = [run for run in runs if "-x1-" in run]
    curves = {"curves": folder / "per_token.parquet", "fits": folder / "per_token_fits.csv"}
    per_token(root, main, **PER_TOKEN, **curves)
    outputs = {
        "fits": "fits.json",
        "curves": "curves.csv",
        "multipliers": "multipliers.csv",
        "frontier": "frontier.csv",
    }
    fit(folder / "runs.csv", root, **FIT, **{key: folder / name for key, name in outputs.items()})
    rows = [{"layer": layer, "quantity": quantity} for layer, quantity in SLOPES]
    middles = [sum(band) / 2 for band in SLOPES.values()]
    middle = [{"n_max": 4096, "slope": value, "low": value - 0.01, "high": value + 0.01} for value in middles]
    counts = {"n_exact": 5, "n_exact_measured": 5, "reduced_order_error": 1e-14, "context": 1024}
    counts |= {"flops_full_order": 10, "flops_reduced_order": 5}
    table2 = {"parameters": 3, "parameters_measured": 3, "flops": 100.0, "flops_measured": 100}
    return Evidence(
        runs=read_table(folder / "runs.csv"),
        fits=read_json(folder / "fits.json"),
        multipliers=pd.read_csv(folder / "multipliers.csv"),
        per_token=pd.read_csv(folder / "per_token_fits.csv"),
        sensitivity=read_frame(folder / "sensitivity.csv"),
        slopes=slopes if slopes is not None else pd.DataFrame([a | b for a, b in zip(rows, middle, strict=True)]),
        counts=pd.DataFrame([counts]),
        table2=pd.DataFrame([table2]),
        paper=load_paper(PAPER),
    )


@pytest.fixture(scope="module")
def at_scale(tmp_path_factory):
    return evidence(tmp_path_factory.mktemp("scale"), AT_SCALE)


def verdicts(found):
    return {name: finding.verdict for name, finding in judge_all(found).items()}


def test_a_world_in_which_the_paper_is_right_reproduces_it(at_scale):
    found = verdicts(at_scale)
    right = ("C1", "C2", "C3", "C4", "C6", "C7", "C8", "C9", "C10", "C11")
    assert {name: found[name] for name in right} == dict.fromkeys(right, Verdict.REPRODUCED)
    assert found["C12"] == Verdict.NOT_REPRODUCED


def test_ten_times_the_tokens_cannot_be_judged_from_one_budget(at_scale):
    finding = judge_all(at_scale)["C5"]
    assert finding.verdict == Verdict.NOT_TESTABLE
    assert "with learned positions on 1× the tokens (needs 10×)" in finding.reason
    assert "infinite at every N, not 10" in finding.reason


def test_a_world_in_which_the_paper_is_wrong_refutes_it(tmp_path):
    laws = PAPERS_LAWS | {
        "lmu": Law(A=1.2 * 1e14**0.05, a=0.05, context_exponent=0.3),
        "lmu_attention": Law(A=2.0 * 1e14**0.05, a=0.05, context_exponent=1.3),
        "transformer": Law(A=1e14**0.05, a=0.05),
        "lstm": Law(A=1.05 * 1e14**0.05, a=0.05),
    }
    found = verdicts(evidence(tmp_path, replace(AT_SCALE, laws=laws)))
    wrong = ("C1", "C2", "C3", "C4", "C6", "C7", "C8")
    assert {name: found[name] for name in wrong} == dict.fromkeys(wrong, Verdict.NOT_REPRODUCED)


def test_a_bent_law_is_not_a_power_law(tmp_path):
    laws = PAPERS_LAWS | {"lmu": Law(E=3.6, A=3000.0, a=0.7)}
    finding = judge_all(evidence(tmp_path, replace(AT_SCALE, laws=laws, variants=("lmu",))))["C1"]
    assert finding.verdict == Verdict.NOT_REPRODUCED
    assert "bends" in finding.reason


def test_noise_makes_it_inconclusive(tmp_path):
    design = replace(AT_SCALE, seed_noise=0.1, seeds=(0, 1))
    found = verdicts(evidence(tmp_path, design))
    assert found["C1"] == Verdict.INCONCLUSIVE
    assert found["C4"] == Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("factor", "multiples", "verdict"),
    [
        (10.0, (2.0, 4.0, 8.0, 16.0, 32.0), Verdict.REPRODUCED),
        (2.0, (2.0, 4.0, 8.0), Verdict.NOT_REPRODUCED),
        (100.0, (4.0, 16.0), Verdict.REPRODUCED),  # a lower bound of 16
        (8.0, (2.0, 4.0), Verdict.NOT_TESTABLE),  # a lower bound of 4
    ],
)
def test_the_token_multiplier_decides_c5(tmp_path, factor, multiples, verdict):
    both = {"E": 1.0, "A": 30.0, "a": 0.2, "b": 0.4}
    laws = {"lmu": Law(B=6000.0, **both), "transformer": Law(B=6000.0 * factor**0.4, **both)}
    design = replace(
        AT_SCALE,
        variants=("lmu", "transformer"),
        widths=(48, 64, 92, 204),
        laws=laws,
        budgets={"transformer": multiples},
        seed_noise=2e-4,
        sequences=20,
    )
    finding = judge_all(evidence(tmp_path, design))["C5"]
    assert finding.verdict == verdict, finding


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        ({"vocab": 4096}, "a vocabulary of 4,096"),
        ({"steps": 100}, "training tokens"),
        ({"corpus": "sotu"}, "the corpus is sotu"),
        ({"widths": (120, 144, 204)}, "3 sizes (needs 4)"),
        ({"widths": (48, 64, 92, 120)}, "N up to 346,008"),
        ({"widths": (120, 144, 180, 204)}, "decades of N"),
        ({"seeds": (0,)}, "1 seed at some size"),
        ({"sequences": 2}, "2 test sequences (needs 20)"),
    ],
)
def test_what_is_lacking_is_named(tmp_path, change, lacking):
    found = judge_all(evidence(tmp_path, replace(AT_SCALE, **{"variants": ("lmu",), "sequences": 20} | change)))["C1"]
    assert found.verdict == Verdict.NOT_TESTABLE
    assert lacking in found.reason


def test_the_value_of_a_law_ends_with_the_number_that_its_interval_bounds(tmp_path):
    found = judge_all(evidence(tmp_path, replace(AT_SCALE, variants=("lmu",), sequences=20)))["C1"]
    assert found.ours.endswith(f", α = {found.value:.4f}")
    assert found.low <= found.value <= found.high


def test_losses_that_rise_with_n_are_judged_like_any_other(tmp_path):
    """Models that hardly learned: the level is still compared, and no number is missing."""
    laws = {"lmu": Law(A=5.0, a=-0.01), "transformer": Law(A=5.1, a=-0.01)}
    design = replace(AT_SCALE, variants=("lmu", "transformer"), widths=(16, 24), steps=40, laws=laws, sequences=20)
    found = judge_all(evidence(tmp_path, design))
    assert found["C1"].value < 0
    assert found["C3"].low < found["C3"].value < found["C3"].high


def test_a_missing_variant_or_a_single_size_does_not_stop_the_others(tmp_path):
    found = judge_all(evidence(tmp_path, replace(AT_SCALE, variants=("lmu",), widths=(48,), seeds=(0,), sequences=20)))
    assert {found[name].verdict for name in ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8")} <= {
        Verdict.NOT_TESTABLE,
        Verdict.INCONCLUSIVE,
        Verdict.REPRODUCED,
        Verdict.NOT_REPRODUCED,
    }
    assert found["C1"].verdict == Verdict.NOT_TESTABLE
    assert found["C2"].verdict == Verdict.NOT_TESTABLE
    assert found["C3"].reason == "lmu and transformer share no size."


def test_slopes_outside_their_bands_refute_table_1_unless_the_interval_reaches_in(at_scale):
    slopes = at_scale.slopes.copy()
    row = (slopes["layer"] == "lmu_parallel") & (slopes["quantity"] == "memory")
    slopes.loc[row, ["slope", "low", "high"]] = [1.9, 1.8, 2.0]
    assert verdicts(replace(at_scale, slopes=slopes))["C9"] == Verdict.NOT_REPRODUCED
    slopes.loc[row, ["slope", "low", "high"]] = [1.3, 0.9, 1.7]
    finding = judge_all(replace(at_scale, slopes=slopes))["C9"]
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert finding.ours.startswith("exponents 1.30 and "), "the parallel LMU's memory comes first, as in the claim"


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.0, "with learned positions is worse than the LSTM"), (0.5, "is indistinguishable from zero")],
)
def test_a_transformer_that_does_not_beat_the_lstm_has_no_gain_to_compare_with(at_scale, share, told):
    gain = [entry | {"denominator_positive_share": share} for entry in at_scale.fits["gain"]]
    finding = judge_all(replace(at_scale, fits=at_scale.fits | {"gain": gain}))["C6"]
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert told in finding.reason


def test_short_sequences_show_overhead_and_decide_nothing(at_scale):
    found = judge_all(replace(at_scale, slopes=at_scale.slopes.assign(n_max=512)))["C9"]
    assert found.verdict == Verdict.NOT_TESTABLE
    assert "sequences of 512 tokens" in found.reason


def test_a_wrong_count_or_an_inequivalent_form_is_told(at_scale):
    wrong = at_scale.table2.assign(parameters_measured=4)
    assert verdicts(replace(at_scale, table2=wrong))["C11"] == Verdict.NOT_REPRODUCED
    off = at_scale.table2.assign(flops_measured=103)
    assert verdicts(replace(at_scale, table2=off))["C11"] == Verdict.NOT_REPRODUCED
    apart = at_scale.counts.assign(reduced_order_error=1e-3)
    assert verdicts(replace(at_scale, counts=apart))["C10"] == Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("context", "verdict"), [(8, Verdict.NOT_TESTABLE), (257, Verdict.NOT_TESTABLE), (256, Verdict.NOT_REPRODUCED)]
)
def test_the_padding_of_a_transform_does_not_refute_table_2(at_scale, context, verdict):
    table2 = at_scale.table2.assign(flops_measured=107)
    found = judge_all(replace(at_scale, table2=table2, counts=at_scale.counts.assign(context=context)))["C11"]
    assert found.verdict == verdict
    wrong = at_scale.counts.assign(context=context, n_exact_measured=6)
    assert judge_all(replace(at_scale, table2=table2, counts=wrong))["C11"].verdict == Verdict.NOT_REPRODUCED


def test_a_largest_size_without_a_usable_run_at_the_main_budget_leaves_the_next_one(at_scale):
    runs = at_scale.runs.copy()
    largest = (runs["variant"] == "lmu") & (runs["size"] == "d204")
    beyond = runs[largest].assign(multiple=2.0)
    runs.loc[largest, "excluded"] = "the test loss is not a number"
    gone = at_scale.per_token[(at_scale.per_token["variant"] != "lmu") | (at_scale.per_token["size"] != "d204")]
    for per_token_fits in (at_scale.per_token, gone):
        changed = replace(at_scale, runs=pd.concat([runs, beyond], ignore_index=True), per_token=per_token_fits)
        row = gone[(gone["variant"] == "lmu") & (gone["size"] == "d144") & (gone["axis"] == "window")].iloc[0]
        assert judge_all(changed)["C7"].value == row["plateau"]


def test_every_claim_has_its_own_id_and_a_rule_in_words_with_its_numbers():
    paper = load_paper(PAPER)
    found = load_claims()
    assert [claim.id for claim in found] == [f"C{i}" for i in range(1, 13)]
    for claim in found:
        assert not set("{}") & set(claim.rule(paper) + fill(claim.printed, paper) + fill(claim.bounds, paper))
        assert all((claim.text, claim.place, claim.statistic, claim.bounds, claim.files))


def test_the_papers_values_come_from_the_catalogue():
    values = {claim.id: fill(claim.printed, load_paper(PAPER)) for claim in load_claims()}
    assert values["C1"] == "(N / 1.95e14)^-0.072"
    assert values["C2"] == "(N / 3.80e14)^-0.069"
    assert values["C5"] == "10x"
    assert values["C7"] == "100 tokens"
    assert values["C12"] == "(N / 6.5e13)^-0.077 + (S / S_min)^-0.76"


def judged(evidence, folder):
    """The entries of claims.json, from the command's own files."""
    names = ("runs", "multipliers", "per_token", "sensitivity", "slopes", "counts", "table2")
    for name in names:
        getattr(evidence, name).to_csv(folder / f"{name}.csv", index=False)
    (folder / "fits.json").write_text(json.dumps(evidence.fits))
    inputs = {"table": "runs", "multipliers": "multipliers", "per_token_fits": "per_token", "slopes": "slopes"}
    inputs |= {name: name for name in ("counts", "table2", "sensitivity")}
    outputs = {f"out_{kind}": folder / f"claims.{kind}" for kind in ("json", "csv", "md")}
    paths = {key: folder / f"{name}.csv" for key, name in inputs.items()}
    tally = claims(**paths, fits=folder / "fits.json", confidence=0.95, **outputs)
    entries = json.loads(outputs["out_json"].read_text())
    assert sum(tally["direct"].values()) == sum(tally["conceptual"].values()) == len(entries)
    assert len(entries) == len(pd.read_csv(outputs["out_csv"]))
    return entries


def test_files_are_written_for_programs_spreadsheets_and_people(at_scale, tmp_path):
    entries = judged(at_scale, tmp_path)
    keys = {"id", "claim", "place", "paper", "ours", "low", "high", "verdict", "reason", "rule", "evidence"}
    keys |= {"baseline", "conceptual", "conceptual_reason"}
    assert len(entries) == 12
    assert keys <= set(entries[0])
    text = (tmp_path / "claims.md").read_text()
    assert all(f"## C{i}: " in text for i in range(1, 13))
    assert "Conceptual: " in text
    assert np.isfinite(entries[0]["low"])


def test_the_rule_reruns_when_a_claim_or_what_it_shares_is_edited():
    """The fingerprint of the rule `claims` covers the claim modules, though nothing imports them by name."""
    covered = reachable("lmu_scaling.analysis.claims.judge", *package.claim_modules())
    names = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    assert {f"{package.__name__}.{name}" for name in names} <= covered
    assert "*claim_modules()" in (REPOSITORY / "workflow" / "rules" / "analysis.smk").read_text()


TOY = """
from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Verdict

def judge(evidence: Evidence) -> Finding:
    return Finding(Verdict.REPRODUCED, f"{len(evidence.runs)} runs", ours="toy", value=1.0, low=0.5, high=2.0)

CLAIM = Claim(
    id="C13", text="A toy claim", place="nowhere", printed="{power_laws[lmu][alpha]}", statistic="none",
    needs="anywhere", decision="Reproduced.", bounds="none", files=("analysis/runs.csv",), judge=judge,
)
"""


def test_a_claim_is_added_by_one_file(at_scale, tmp_path, monkeypatch):
    (tmp_path / "c13_toy.py").write_text(TOY)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    entry = judged(at_scale, tmp_path)[-1]
    sys.modules.pop(f"{package.__name__}.c13_toy")
    assert (entry["id"], entry["paper"], entry["verdict"]) == ("C13", "0.072", Verdict.REPRODUCED)
    assert entry["reason"] == f"{len(at_scale.runs)} runs"
    assert (
        "| C13 A toy claim (nowhere) | – | 0.072 | toy | 0.5 … 2 | **reproduced** | **not applicable** |"
        in (tmp_path / "claims.md").read_text()
    )
    assert pd.read_csv(tmp_path / "claims.csv")["id"].tolist()[-1] == "C13"
