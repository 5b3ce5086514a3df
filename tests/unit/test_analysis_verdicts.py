"""Two levels of verdict, and the nuisance settings that take a verdict away; a case on either side of each bound."""

import math
from dataclasses import fields, replace

import pandas as pd
import pytest

from lmu_scaling.analysis.claims.c05_ten_times_the_tokens import MULTIPLIER
from lmu_scaling.analysis.claims.c06_gain_like_transformer_over_lstm import RATIO
from lmu_scaling.analysis.claims.common import Evidence, Support, Verdict
from lmu_scaling.analysis.claims.conditions import CONDITIONS, LIMITS
from lmu_scaling.analysis.claims.context_gain import flat_bound
from lmu_scaling.analysis.claims.judge import all_gates, judge_all
from lmu_scaling.analysis.claims.nuisance import finer_sweep
from lmu_scaling.analysis.claims.power_law import PAPER_ALPHA, PAPER_LEVEL
from lmu_scaling.analysis.claims.scale import SCALE
from lmu_scaling.analysis.per_token import EXCESS
from lmu_scaling.analysis.reference import load_paper
from tests.synthetic import PAPER, Design, Law
from tests.unit.test_analysis_claims import AT_SCALE, evidence

JOINT = {"A": 10.0, "a": 0.08, "b": 0.5}
LAWS = {
    "lmu": Law(B=300.0, context_exponent=1.2, **JOINT),
    "lmu_attention": Law(A=9.8, a=0.08, B=300.0, b=0.5, context_exponent=0.4),
    "transformer": Law(B=300.0 * 14**0.5, context_exponent=0.4, **JOINT),
    "transformer_modern": Law(B=150.0, context_exponent=0.4, **JOINT),
    "transformer_rotary": Law(B=300.0, context_exponent=0.4, **JOINT),
    "lstm": Law(A=10.25, a=0.08, B=300.0 * 14**0.5, b=0.5),
}
STUDY = Design(
    variants=tuple(LAWS),
    widths=(16, 24, 32, 48, 72),
    budgets={"transformer": (5.0, 12.0, 30.0), "transformer_modern": (0.5,)},
    context=512,
    steps=1700,
    seed_noise=0.0005,
    sequences=480,
    documents=120,
    train_tokens=2e8,
    laws=LAWS,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return evidence(tmp_path_factory.mktemp("study"), STUDY)


@pytest.fixture(scope="module")
def at_scale(tmp_path_factory):
    return evidence(tmp_path_factory.mktemp("scale"), AT_SCALE)


def runs_with(found, where=None, **columns):
    """The evidence with other values in some columns of the runs."""
    runs = found.runs.copy()
    mask = pd.Series(True, index=runs.index) if where is None else where(runs)
    for name, value in columns.items():
        runs.loc[mask, name] = value
    return replace(found, runs=runs)


def of(variant, multiple=1.0):
    return lambda runs: (runs["variant"] == variant) & (runs["multiple"] == multiple)


def with_alternative(found, variant, effect, setting="positions", value="rotary"):
    row = {"variant": variant, "size": found.runs["size"].iloc[0], "multiple": 1.0, "kind": "alternative"}
    row |= {"setting": setting, "value": value, "reference": "learned", "loss": 5 + effect, "effect": effect}
    return replace(found, sensitivity=pd.concat([found.sensitivity, pd.DataFrame([row])], ignore_index=True))


# ----------------------------------------------------------------------------------------------------------- gates
@pytest.mark.parametrize("name", ["study", "at_scale"])
def test_what_a_plan_can_say_about_a_verdict_is_what_the_verdict_will_say(name, request):
    """The gates need no results but the table of runs; the judge may find further reasons in the results."""
    found = request.getfixturevalue(name)
    short = runs_with(found, tokens=1000, seed=1, context=256)
    for one in (found, short):
        planned = Evidence(one.runs, {}, *[pd.DataFrame()] * 6, one.paper)
        findings = judge_all(one)
        for claim, gates in all_gates(planned).items():
            assert set(gates.direct) <= set(findings[claim].missing), claim
            assert set(gates.conceptual) <= set(findings[claim].concept.missing), claim
        assert all(gates.conceptual for gates in all_gates(replace(planned, runs=short.runs)).values())


# --------------------------------------------------------------------------------------------- conceptual verdicts
def test_a_small_study_supports_what_it_shows_and_reproduces_nothing(study):
    found = judge_all(study)
    assert {name: found[name].concept.verdict for name in ("C1", "C3", "C4", "C5", "C7", "C8")} == dict.fromkeys(
        ("C1", "C3", "C4", "C5", "C7", "C8"), Support.SUPPORTS
    ), {name: finding.concept.reason for name, finding in found.items()}
    assert {found[f"C{i}"].verdict for i in range(1, 9)} == {Verdict.NOT_TESTABLE}
    assert {found[f"C{i}"].concept.verdict for i in range(9, 13)} == {Support.NOT_APPLICABLE}


def test_each_baseline_has_a_verdict_of_its_own_and_is_named(study):
    found = judge_all(study)
    assert found["C3m"].concept.verdict == Support.CONTRADICTS
    assert found["C5m"].concept.verdict == Support.CONTRADICTS
    assert found["C3r"].concept.verdict == Support.INCONCLUSIVE, "the same law as the LMU's"
    statement = found["C3"].concept.reason
    assert "On corpus embedded (vocabulary 4,096, context 512, N from " in statement
    assert "lower than that of a GPT-2-style transformer with learned positions by" in statement
    assert "and higher than that of a modern transformer by" in statement
    assert "that of a GPT-2-style transformer with rotary positions by" in statement
    assert statement.endswith("This bears on the direction of the paper's claim, not on its values.")
    without = replace(study, runs=study.runs[study.runs["variant"] != "transformer_modern"])
    assert [name for name in judge_all(without) if not name[-1].isdigit()] == ["C3r", "C5r", "C6r", "C7r", "C8r"]


def dropped(found, column, values):
    return replace(found, runs=found.runs[~found.runs[column].isin(values)])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda e: dropped(e, "size", ["d24"]), "4 sizes (needs 5)"),
        (lambda e: runs_with(e, lambda r: r["size"] == "d72", n_exact=90_000), "decades of N (needs 1.2)"),
        (lambda e: dropped(e, "seed", [1]), "1 seed at some size (needs 2)"),
        (lambda e: runs_with(e, tokens=9_000_000), "training tokens per parameter (needs 100)"),
        (lambda e: runs_with(e, epochs=1.01), "1.0 epochs at the main budget (at most 1)"),
        (lambda e: runs_with(e, epochs=math.nan), "epochs at the main budget"),
        (lambda e: runs_with(e, test_documents=29), "29 test documents (needs 30)"),
        (lambda e: runs_with(e, of("lmu"), tuning_multiple=0.24), "sweeps shorter than 0.25 of the run at lmu d16 x1"),
        (lambda e: runs_with(e, of("lmu"), tuning_edge="untuned"), "no sweep at lmu d16 x1"),
        (lambda e: runs_with(e, of("lmu"), tuning_edge="embedding_scale"), "best embedding scale on an edge at lmu"),
        (
            lambda e: runs_with(e, of("lmu"), precision="bfloat16"),
            "one precision for all (lmu in bfloat16; transformer",
        ),
    ],
)
def test_each_condition_that_is_not_met_is_named(study, change, told):
    concept = judge_all(change(study))["C3"].concept
    assert concept.verdict == Support.NOT_MET
    assert told in concept.reason
    assert "Measured, without a verdict: On corpus embedded" in concept.reason


def test_at_its_bounds_every_condition_is_met(study):
    least = {"test_documents": 30, "tuning_multiple": 0.25, "epochs": 1.0}
    largest = study.main_runs["n_exact"].max()
    changed = runs_with(study, **least, tokens=100 * largest)
    assert judge_all(changed)["C3"].concept.verdict == Support.SUPPORTS


@pytest.mark.parametrize(
    ("multiple", "columns", "met"),
    [
        (5.0, {"epochs": 4.0}, True),
        (5.0, {"epochs": 4.1}, False),
        (5.0, {"tuning_multiple": 0.05}, False),
        (5.0, {"tuning_edge": "learning_rate"}, False),
        (12.0, {"tuning_multiple": 0.05}, False),
    ],
)
def test_long_budgets_have_conditions_of_their_own(study, multiple, columns, met):
    concept = judge_all(runs_with(study, of("transformer", multiple), **columns))["C5"].concept
    assert concept.verdict == (Support.SUPPORTS if met else Support.NOT_MET), concept.reason
    assert judge_all(runs_with(study, of("transformer", multiple), **columns))["C3"].concept.verdict == Support.SUPPORTS


def test_short_contexts_and_short_documents_are_no_ground_for_c7_and_c8(study):
    for columns, told in (
        ({"context": 511}, "a context of 511"),
        ({"test_tokens": 120 * 512}, "documents of 512 tokens"),
    ):
        found = judge_all(runs_with(study, **columns))
        assert {found[name].concept.verdict for name in ("C7", "C8")} == {Support.NOT_MET}
        assert told in found["C7"].concept.reason
    assert judge_all(runs_with(study, test_tokens=120 * 513))["C7"].concept.verdict == Support.SUPPORTS


def edited(found, key, change, **where):
    """The evidence with a changed entry of fits.json."""
    entries = [
        entry | change if all(entry.get(name) == value for name, value in where.items()) else entry
        for entry in found.fits[key]
    ]
    return replace(found, fits=found.fits | {key: entries})


@pytest.mark.parametrize(
    ("change", "support"),
    [
        ({"r2": 0.990, "curvature_low": -0.01, "curvature_high": 0.01}, Support.SUPPORTS),
        ({"r2": 0.989, "curvature_low": -0.01, "curvature_high": 0.01}, Support.INCONCLUSIVE),
        ({"curvature_low": 0.001, "curvature_high": 0.01}, Support.CONTRADICTS),
        ({"alpha_low": -0.001, "curvature_low": -0.01}, Support.INCONCLUSIVE),
        ({"alpha_low": -0.02, "alpha_high": -0.001}, Support.CONTRADICTS),
    ],
)
def test_only_the_form_of_a_law_is_judged_under_other_conditions(study, change, support):
    found = judge_all(edited(study, "power", change, variant="lmu", multiple=1.0))["C1"].concept
    assert found.verdict == support
    assert "log–log" in found.reason or "rose with N" in found.reason


# ------------------------------------------------------------------------------------------------- nuisance rules
COMPARED = ("C3", "C4", "C6")


@pytest.mark.parametrize("edge", ["learning_rate", "embedding_scale", "learning_rate+embedding_scale", "untuned"])
def test_a_baseline_on_the_edge_of_its_sweep_gets_no_verdict(at_scale, edge):
    found = judge_all(runs_with(at_scale, of("transformer"), tuning_edge=edge))
    for name in ("C3", "C6", "C7", "C8"):
        assert found[name].verdict == Verdict.INCONCLUSIVE
        assert "not tuned" in found[name].reason
    assert found["C4"].verdict == Verdict.REPRODUCED, "it does not involve the transformer"
    assert found["C1"].verdict == Verdict.REPRODUCED


@pytest.mark.parametrize(("share", "decided"), [(0.99, True), (1.0, False), (1.5, False)])
@pytest.mark.parametrize(
    ("claim", "loser"), [("C3", "transformer"), ("C4", "lmu"), ("C6", "transformer"), ("C6", "lstm")]
)
def test_a_setting_that_improves_the_loser_by_the_gap_takes_the_verdict_away(at_scale, claim, loser, share, decided):
    value = judge_all(at_scale)[claim].value
    if claim == "C6":
        entry = at_scale.fits["gain"][0]
        value = entry["gain"] if loser == "transformer" else entry["gain_of_transformer"]
    finding = judge_all(with_alternative(at_scale, loser, -share * value))[claim]
    assert finding.verdict == (Verdict.REPRODUCED if decided else Verdict.INCONCLUSIVE)
    if not decided:
        assert f"positions rotary instead of learned lowers the loss of {loser}" in finding.reason
        assert f"by {share * value:.3f} nats; the gap is {value:.3f}" in finding.reason


def test_what_improves_the_winner_or_harms_the_loser_does_not_matter(at_scale):
    assert judge_all(with_alternative(at_scale, "lmu", -9.0))["C3"].verdict == Verdict.REPRODUCED
    assert judge_all(with_alternative(at_scale, "transformer", 9.0))["C3"].verdict == Verdict.REPRODUCED


def test_a_conceptual_verdict_must_survive_at_the_nearer_end_of_its_interval(study):
    entry = judge_all(study)["C3"]
    between = (entry.low + entry.value) / 2
    assert (
        judge_all(with_alternative(study, "transformer", -0.99 * entry.low))["C3"].concept.verdict == Support.SUPPORTS
    )
    changed = judge_all(with_alternative(study, "transformer", -between))["C3"]
    assert changed.concept.verdict == Support.INCONCLUSIVE
    assert "depends on the baseline's settings" in changed.concept.reason
    assert changed.outcome == Verdict.REPRODUCED, "the gap itself is larger"


@pytest.mark.parametrize(
    ("rises", "expected"),
    [
        ((0.1, 0.1), 0.0),
        ((0.0, 0.08), 0.01),
        ((0.02, 0.1), 0.0064 / 0.96),
        ((0.03, None), 0.0),
        ((0.01, -0.008), 0.008),
    ],
)
def test_what_a_finer_sweep_would_gain_is_the_vertex_of_the_parabola(rises, expected):
    values = [(0.001, rises[0]), (0.003, 0.0), (0.009, rises[1])]
    rows = [{"value": value, "effect": rise} for value, rise in values if rise is not None]
    assert finer_sweep(pd.DataFrame(rows).assign(reference=0.003)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("rise", "decided"), [(7.9, True), (8.1, False)])
def test_a_coarse_sweep_of_the_loser_does_not_resolve_a_small_gap(at_scale, rise, decided):
    value = judge_all(at_scale)["C4"].value
    sweep = at_scale.sensitivity.copy()
    mine = (sweep["variant"] == "lmu") & (sweep["setting"] == "learning_rate") & (sweep["size"] == "d48")
    sweep.loc[mine, "effect"] = [0.0, rise * value]  # of the neighbours below and above the optimum
    finding = judge_all(replace(at_scale, sensitivity=sweep))["C4"]
    assert finding.verdict == (Verdict.REPRODUCED if decided else Verdict.INCONCLUSIVE)
    assert decided or "a finer sweep of the learning rate lowers the loss of lmu (d48)" in finding.reason


def test_runs_of_different_precision_are_never_compared(at_scale):
    found = judge_all(runs_with(at_scale, of("lmu"), precision="bfloat16"))
    for name in ("C3", "C4", "C5", "C6", "C7"):
        assert found[name].verdict == Verdict.NOT_TESTABLE
        assert "one precision for all" in found[name].reason
    assert found["C1"].verdict == Verdict.REPRODUCED
    mixed = runs_with(at_scale, lambda r: of("lmu")(r) & (r["size"] == "d48"), precision="bfloat16")
    assert judge_all(mixed)["C1"].verdict == Verdict.NOT_TESTABLE


# -------------------------------------------------------------------------------------------------- bounds, direct
@pytest.mark.parametrize(("times", "verdict"), [(0.99, Verdict.REPRODUCED), (1.01, Verdict.NOT_REPRODUCED)])
def test_alpha_is_judged_by_the_combined_interval(at_scale, times, verdict):
    fit = next(e for e in at_scale.fits["power"] if e["variant"] == "lmu")
    allowed = math.hypot(0.001, PAPER_ALPHA) + at_scale.paper["rounding"]["alpha"]
    alpha = fit["paper_alpha"] + times * allowed
    change = {"alpha": alpha, "alpha_low": alpha - 0.001, "alpha_high": alpha + 0.001}
    finding = judge_all(edited(at_scale, "power", change, variant="lmu"))["C1"]
    assert finding.verdict == verdict
    assert "α" in finding.reason


@pytest.mark.parametrize(("times", "verdict"), [(0.99, Verdict.REPRODUCED), (1.01, Verdict.NOT_REPRODUCED)])
def test_the_level_is_judged_too(at_scale, times, verdict):
    middle = math.exp(sum(map(math.log, at_scale.paper["experiment"]["sizes"].values())) / 6)
    printed = (middle / 1.95e14) ** -0.072
    level = printed - times * math.hypot(0.01, PAPER_LEVEL)
    change = {"n_mean": middle, "loss_at_mean": level, "loss_at_mean_low": level - 0.01}
    finding = judge_all(edited(at_scale, "power", change | {"loss_at_mean_high": level + 0.01}, variant="lmu"))["C1"]
    assert finding.verdict == verdict
    assert (verdict == Verdict.REPRODUCED) or "the level's combined interval excludes" in finding.reason


def test_the_papers_own_recipe_counts_for_c1_if_there_is_one(at_scale):
    fit = next(e for e in at_scale.fits["power"] if e["variant"] == "lmu")
    other = fit | {"setting": "paper", "alpha": 0.09, "alpha_low": 0.089, "alpha_high": 0.091}
    both = replace(at_scale, fits=at_scale.fits | {"power": [*at_scale.fits["power"], other]})
    by_recipe = at_scale.runs.assign(setting="paper")
    both = replace(both, runs=pd.concat([at_scale.runs, by_recipe], ignore_index=True))
    found = judge_all(both)
    assert found["C1"].verdict == Verdict.NOT_REPRODUCED and found["C1"].value == 0.09
    assert found["C1"].concept.verdict == Support.SUPPORTS, "under other conditions the tuned runs count"
    assert found["C3"].verdict == Verdict.REPRODUCED


def multiplied(found, rows):
    """Token multipliers of the LMU by size: (low, value, high, beyond, largest)."""
    table = found.multipliers.copy()
    mine = (table["variant"] == "lmu") & (table["against"] == "transformer") & (table["quantity"] == "tokens")
    columns = ["low", "value", "high", "beyond", "largest"]
    table.loc[mine, columns] = [rows.get(size, rows["all"]) for size in table.loc[mine, "size"]]
    return replace(found, multipliers=table)


INSIDE = (MULTIPLIER[0], 10.0, MULTIPLIER[1], False, 32.0)


@pytest.mark.parametrize(
    ("one_size", "verdict", "support"),
    [
        (INSIDE, Verdict.REPRODUCED, Support.SUPPORTS),
        ((4.9, 10.0, 20.0, False, 32.0), Verdict.INCONCLUSIVE, Support.INCONCLUSIVE),
        ((5.0, 10.0, 20.1, False, 32.0), Verdict.INCONCLUSIVE, Support.SUPPORTS),
        ((20.1, 25.0, 30.0, False, 32.0), Verdict.NOT_REPRODUCED, Support.SUPPORTS),
        ((1.0, 2.0, 4.9, False, 32.0), Verdict.NOT_REPRODUCED, Support.CONTRADICTS),
        ((10.0, 10.0, math.inf, True, 10.0), Verdict.REPRODUCED, Support.SUPPORTS),
        ((9.9, 10.0, math.inf, True, 10.0), Verdict.INCONCLUSIVE, Support.SUPPORTS),
    ],
)
def test_c5_is_judged_at_every_size(at_scale, one_size, verdict, support):
    finding = judge_all(multiplied(at_scale, {"all": INSIDE, "d92": one_size}))["C5"]
    assert finding.verdict == verdict, finding.reason
    assert finding.concept.verdict == support


def test_a_long_budget_that_was_not_tuned_for_itself_decides_nothing(at_scale):
    longer = at_scale.runs[of("transformer")(at_scale.runs)].assign(multiple=10.0, epochs=3.0)
    for sweep, verdict in ((0.25, Verdict.REPRODUCED), (0.025, Verdict.INCONCLUSIVE)):
        runs = pd.concat([at_scale.runs, longer.assign(tuning_multiple=sweep)], ignore_index=True)
        assert judge_all(multiplied(replace(at_scale, runs=runs), {"all": INSIDE}))["C5"].verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "share", "verdict"),
    [
        (RATIO[0], RATIO[1], 1.0, Verdict.REPRODUCED),
        (RATIO[0] - 0.01, RATIO[1], 1.0, Verdict.INCONCLUSIVE),
        (0.1, RATIO[0] - 0.01, 1.0, Verdict.NOT_REPRODUCED),
        (RATIO[1] + 0.01, 9.0, 0.975, Verdict.NOT_REPRODUCED),
        (RATIO[1] + 0.01, 9.0, 0.974, Verdict.INCONCLUSIVE),
        (RATIO[0], RATIO[1], 0.025, Verdict.INCONCLUSIVE),
    ],
)
def test_the_ratio_of_c6_and_its_premise(at_scale, low, high, share, verdict):
    change = {"low": low, "high": high, "denominator_positive_share": share}
    finding = judge_all(edited(at_scale, "gain", change, variant="lmu"))["C6"]
    assert finding.verdict == verdict
    assert ("premise fails" in finding.reason) == (share <= 0.025)
    assert ("indistinguishable from zero" in finding.reason) == (0.025 < share < 0.975)


# ------------------------------------------------------------------------------------------------------ C7 and C8
@pytest.mark.parametrize(("context", "bound"), [(1024, 0.059), (512, 0.045), (256, 0.026)])
def test_the_bound_of_flatness_follows_the_context(context, bound):
    assert flat_bound(load_paper(PAPER), context) == pytest.approx(bound, abs=5e-4)


def gains(found, variant, control=(0.2, 0.15), **row):
    """The evidence with other gains of a variant, and (estimate, low) of the transformer's."""
    table = found.per_token.copy()
    for column, value in row.items():
        table.loc[table["variant"] == variant, column] = value
    table.loc[table["variant"] == "transformer", ["plateau", "plateau_low"]] = control
    return replace(found, per_token=table)


def row_of(low, high, less, more, approach=0.3):
    row = {"plateau": (low + high) / 2, "plateau_low": low, "plateau_high": high, "approach_low": approach}
    return row | {"excess": (less + more) / 2, "excess_low": less, "excess_high": more}


BOUND = flat_bound(load_paper(PAPER), 1024)


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (row_of(-0.02, BOUND - 1e-4, -0.2, -1e-4), "flat"),
        (row_of(-0.02, BOUND + 1e-4, -0.2, -1e-4), ""),
        (row_of(-0.02, BOUND - 1e-4, -0.2, 1e-4), ""),
        (row_of(BOUND + 1e-4, 0.2, -0.2, -0.1), "falling"),
        (row_of(BOUND - 1e-4, 0.2, -0.2, -0.1), ""),
        (row_of(1e-4, 0.2, -BOUND + 1e-4, 0.1), "falling"),
        (row_of(1e-4, 0.2, -BOUND - 1e-4, 0.1), ""),
        (row_of(-1e-4, 0.2, -BOUND + 1e-4, 0.1), ""),
        (row_of(0.01, 0.04, -0.05, -0.01), ""),  # flat and falling at once
    ],
)
def test_flat_and_falling_have_bounds(at_scale, row, state):
    verdicts = {"flat": Verdict.REPRODUCED, "falling": Verdict.NOT_REPRODUCED, "": Verdict.INCONCLUSIVE}
    assert judge_all(gains(at_scale, "lmu", **row))["C7"].verdict == verdicts[state]
    verdicts |= {"flat": Verdict.NOT_REPRODUCED, "falling": Verdict.REPRODUCED}
    assert judge_all(gains(at_scale, "lmu_attention", **row))["C8"].verdict == verdicts[state]


@pytest.mark.parametrize(("low", "passed"), [(1e-4, True), (0.0, False), (-0.01, False)])
def test_the_transformer_must_gain_where_the_lmu_is_flat(at_scale, low, passed):
    row = row_of(-0.02, 0.02, -0.2, -0.1)
    finding = judge_all(gains(at_scale, "lmu", control=(0.02, low), **row))["C7"]
    assert finding.verdict == (Verdict.REPRODUCED if passed else Verdict.INCONCLUSIVE)
    assert passed or ("the control fails" in finding.reason and finding.concept.verdict == Support.NOT_MET)


def test_every_transformer_is_a_control_of_its_own(study):
    """C7m holds where the GPT-2-style transformer gains nothing, and fails where the modern one gains nothing."""
    found = judge_all(gains(study, "lmu", control=(0.0, -0.01)))
    assert found["C7"].concept.verdict == found["C8"].concept.verdict == Support.NOT_MET
    assert found["C7m"].concept.verdict == found["C8m"].concept.verdict == Support.SUPPORTS
    assert "from the gain of a modern transformer" in found["C7m"].detail
    found = judge_all(gains(study, "transformer_modern", plateau=0.0, plateau_low=-0.01))
    assert found["C7"].concept.verdict == Support.SUPPORTS
    assert "a modern transformer does not gain" in found["C7m"].concept.reason


def test_each_control_is_compared_on_its_own(study):
    table = study.per_token[study.per_token["axis"] == "window"].set_index(["variant", "size"])
    largest = study.runs.sort_values("n_exact")["size"].iloc[-1]
    for control, column in EXCESS.items():
        expected = table.loc[("lmu", largest), "plateau"] - table.loc[(control, largest), "plateau"]
        assert table.loc[("lmu", largest), column] == pytest.approx(expected, abs=1e-12)
        assert table.loc[(control, largest), column] == 0


@pytest.mark.parametrize(("approach", "passed"), [(BOUND + 1e-4, True), (BOUND - 1e-4, False)])
def test_a_model_must_have_gained_before_it_is_called_flat(at_scale, approach, passed):
    row = row_of(-0.02, 0.02, -0.2, -0.1, approach)
    finding = judge_all(gains(at_scale, "lmu", **row))["C7"]
    assert finding.verdict == (Verdict.REPRODUCED if passed else Verdict.INCONCLUSIVE)
    assert passed or "learned nothing from context" in finding.reason


def test_a_model_that_learned_nothing_does_not_pass_c7(tmp_path):
    """Its loss is the same at every position: flat, but not because it forgets."""
    laws = AT_SCALE.laws | {"lmu": Law(A=6.9, a=0.0, context_exponent=0.0)}
    design = replace(AT_SCALE, variants=("lmu", "transformer"), widths=(144, 204), laws=laws)
    found = evidence(tmp_path, design)
    finding = judge_all(found)["C7"]
    assert finding.high < flat_bound(found.paper, 1024), "it is flat"
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "learned nothing" in finding.reason


def test_without_a_transformer_there_is_no_control(at_scale):
    alone = replace(at_scale, runs=at_scale.runs[at_scale.runs["variant"] == "lmu"])
    table = at_scale.per_token[at_scale.per_token["variant"] == "lmu"].assign(excess=math.nan)
    finding = judge_all(replace(alone, per_token=table))["C7"]
    assert finding.verdict == Verdict.INCONCLUSIVE
    assert "no GPT-2-style transformer of the same size" in finding.reason


@pytest.mark.parametrize("gate", [SCALE, CONDITIONS, LIMITS])
def test_every_bound_of_a_gate_has_a_reason(gate):
    assert all(field.metadata["reason"] for field in fields(gate))
