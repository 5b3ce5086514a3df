"""Interactive charts and the findings on the first screen say what the results say, in odd experiments as well."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.paper import load
from lmu_scaling.paper.charts import curves, embed, traces
from lmu_scaling.paper.charts.embed import CHARTS
from lmu_scaling.paper.findings import findings, ranking
from lmu_scaling.paper.style import Look, Mark
from tests.synthetic import Design, write_experiment

CASES = {
    "full": Design(widths=(16, 24, 32), budgets={"transformer": (2.0,)}),
    "one_size": Design(widths=(32,), seeds=(0,), budgets={}),
    "no_transformer": Design(variants=("lmu", "lmu_attention"), widths=(16, 32), budgets={}),
    "no_lmu": Design(variants=("transformer",), widths=(16, 32), seeds=(0,), budgets={}),
}


@pytest.fixture(scope="module", params=CASES)
def results(request, tmp_path_factory):
    return write_experiment(tmp_path_factory.mktemp(request.param), CASES[request.param], draws=50)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return write_experiment(tmp_path_factory.mktemp("full"), CASES["full"], draws=50)


def test_the_library_is_the_one_that_its_readme_names():
    folder = embed.SCRIPTS[0].parent
    (stated,) = re.findall(r"sha256  ([0-9a-f]{64})", (folder / "README.md").read_text())
    text = embed.SCRIPTS[0].read_bytes()
    assert hashlib.sha256(text).hexdigest() == stated
    assert b"Licensed under the MIT license" in text[:300]
    assert not re.search(rb"\beval\(|new Function\(|</script|\r", text), "the policy forbids it, or the page would end"


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_valid_json_without_holes_in_its_text(results, name):
    shown = embed.chart(name, results, Look(), "What it shows")
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', shown)
    content = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert "nan" not in shown
    for trace in content["data"]:
        assert len(trace["x"]) == len(trace["y"]) == len(trace.get("hovertext", trace["x"]))
        assert trace["legendgroup"]
        assert trace.get("xaxis", "x").replace("x", "xaxis") in content["layout"]
    named = [trace["legendgroup"] for trace in content["data"] if trace.get("showlegend", True)]
    assert len(named) == len(set(named)), "one entry of the legend per series"
    assert "What it shows" in shown


def test_a_figure_without_a_chart_gets_none(full):
    assert embed.chart("architecture", full, Look(), "words") == ""


def test_every_run_is_a_point_with_its_error_and_a_row_of_the_table(full):
    chart = CHARTS["loss_vs_N"](full, Look())
    runs = pd.read_csv(full / "analysis/runs.csv")
    main = runs[runs["multiple"] == 1]
    points = [trace for trace in chart.traces if trace["mode"] == "markers"]
    drawn = sorted((x, y, e) for t in points for x, y, e in zip(t["x"], t["y"], t["error_y"]["array"], strict=True))
    wanted = sorted(zip(main["n_exact"], main["test_loss"], main["test_se"], strict=True))
    assert np.allclose(drawn, wanted, rtol=1e-5)
    hover = " ".join(text for trace in points for text in trace["hovertext"])
    assert all(f"run {name}" in hover for name in main["run"])
    assert len(chart.table.rows) == len(main)


def test_bands_enclose_the_law_and_share_its_series(full):
    chart = CHARTS["loss_vs_N"](full, Look())
    lines = [trace for trace in chart.traces if trace["mode"] == "lines"]
    bands = [trace for trace in lines if "fill" in trace]
    assert len(bands) == len(CASES["full"].variants)
    for band in bands:
        (law,) = [line for line in lines if line["legendgroup"] == band["legendgroup"] and "fill" not in line]
        half = len(law["x"])
        assert band["x"][:half] == law["x"]
        high, low = band["y"][:half], band["y"][half:][::-1]
        assert all(a <= y <= b for a, y, b in zip(low, law["y"], high, strict=True))


def test_panels_of_the_training_curves_lie_side_by_side_or_below_each_other(full):
    chart = CHARTS["training_curves"](full, Look())
    wide = [chart.layout[f"xaxis{key}"]["domain"] for key in ("", "2", "3")]
    tall = [chart.narrow[f"yaxis{key}"]["domain"] for key in ("", "2", "3")]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(wide))
    assert all(a[0] > b[1] for a, b in itertools.pairwise(tall)), "the smallest size is on top"
    assert {tuple(chart.narrow[f"xaxis{key}"]["domain"]) for key in ("", "2", "3")} == {(0.0, 1.0)}


def test_runs_of_a_sensitivity_study_are_in_no_curve(full, tmp_path):
    history = pd.read_parquet(full / "analysis/history.parquet")
    other = history[history["run"] == history["run"].iloc[0]].assign(run="odd", setting="rotary")
    (tmp_path / "analysis").mkdir()
    more = pd.concat([history.assign(setting="main"), other])
    more.to_parquet(tmp_path / "analysis/history.parquet")
    (tmp_path / "analysis/counts.csv").write_text((full / "analysis/counts.csv").read_text())
    assert "run odd" not in json.dumps(CHARTS["training_curves"](tmp_path, Look()).traces)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20))
def test_numbers_are_json_and_close_to_what_they_were(values):
    kept = traces.numbers(values)
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept
    for value, number in zip(values, kept, strict=True):
        assert (number is None) == (not math.isfinite(value)) or abs(value) > 1.7e308
        assert number is None or math.isclose(number, value, rel_tol=1e-5)


@given(st.integers(1, 3000))
def test_thinned_curves_keep_both_ends_and_their_order(count):
    kept = curves._spaced(np.arange(1, count + 1) * 512)
    assert kept[0] == 0 and kept[-1] == count - 1
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= curves.MOST_POINTS


@given(st.text(max_size=60))
def test_no_label_can_be_markup(label):
    trace = traces.points(pd.Series([1.0]), pd.Series([2.0]), None, ["x"], Mark(label, "#123456", "o"), "a")
    assert "<" not in trace["name"] and ">" not in trace["name"]


# Findings ------------------------------------------------------------------------------------------------------------
def test_the_ranking_is_by_loss_and_gaps_point_away_from_the_best():
    runs = pd.DataFrame(
        {"variant": ["a", "b", "c", "a"], "size": ["s", "s", "s", "t"], "multiple": 1.0, "n_exact": [9, 9, 9, 1]}
    ).assign(test_loss=[3.0, 2.0, 4.0, 1.0])
    rows = [{"size": "s", "difference": -1.0, "low": -1.5, "high": -0.5}]
    fits = {"comparisons": [{"a": "a", "b": "b", "multiple": 1.0, "per_size": rows}]}
    ranked = ranking(runs, fits)
    assert list(ranked["variant"]) == ["b", "a", "c"]
    assert tuple(ranked.loc[1, ["above", "low", "high"]]) == (1.0, 0.5, 1.5)
    assert math.isnan(ranked.loc[2, "above"]), "not compared"


def test_findings_are_said_for_every_experiment(results):
    text = findings(results, Look())
    assert "has the lowest test loss at the largest size" in text
    assert "nan" not in text
    exponents = [fit for fit in json.loads((results / "analysis/fits.json").read_text())["power"] if fit.get("fitted")]
    assert ("The loss falls as" in text) == bool(exponents)
    variants = set(load.runs(results / "analysis/runs.csv", "variant")["variant"])
    assert ("a transformer needs" in text) <= ({"lmu", "transformer"} <= variants)


def test_supported_and_contradicted_claims_are_named_and_the_others_come_last(full, tmp_path):
    analysis = tmp_path / "analysis"
    analysis.mkdir()
    for name in ("runs.csv", "fits.json", "multipliers.csv"):
        (analysis / name).write_text((full / "analysis" / name).read_text())
    claims = json.loads((full / "analysis/claims.json").read_text())
    for claim, verdict in zip(claims, ("supports", "contradicts"), strict=False):
        claim["conceptual"] = verdict
    (analysis / "claims.json").write_text(json.dumps(claims))
    text = findings(tmp_path, Look())
    assert re.search(r"1 supported under the conditions of this experiment</span> <a href=\"#C1\"", text)
    assert re.search(r"1 contradicted under the conditions of this experiment</span> <a href=\"#C2\"", text)
    assert "C1," not in text[text.index("No verdict at this scale") :]


@pytest.mark.parametrize(("low", "high", "said"), [(0.0, math.inf, False), (0.2, math.inf, True), (0.0, 4.0, True)])
def test_a_number_of_tokens_that_could_be_any_is_not_called_a_finding(full, tmp_path, low, high, said):
    shutil.copytree(full / "analysis", tmp_path / "analysis")
    table = pd.read_csv(tmp_path / "analysis/multipliers.csv").assign(low=low, high=high)
    table.to_csv(tmp_path / "analysis/multipliers.csv", index=False)
    assert ("To reach the loss of the LMU" in findings(tmp_path, Look())) == said


def test_exponents_have_one_number_of_digits(full, tmp_path):
    shutil.copytree(full / "analysis", tmp_path / "analysis")
    fits = json.loads((full / "analysis/fits.json").read_text())
    for fit in fits["power"]:
        fit.update(alpha=0.008, alpha_low=-0.000352, alpha_high=0.0151)
    (tmp_path / "analysis/fits.json").write_text(json.dumps(fits))
    assert "0.008 [−0.000, 0.015]" in findings(tmp_path, Look())
