"""Markup in data stays text: in every string that the report takes from a results folder, wherever it shows it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling.paper import inputs
from lmu_scaling.paper.page import Page
from lmu_scaling.paper.report import _outputs
from tests.synthetic import Design, write_experiment

EVIL = "<img src=x onerror='alert(1)'>\"&"
NAMES = {
    "id",
    "verdict",
    "conceptual",
    "source",
    "name",
    "figures",
    "tables",
    "evidence",
}  # looked up, so they must stay as they are


def poisoned(value: Any, key: str = "") -> Any:
    """Every string that is not a name of something else gets markup."""
    if isinstance(value, str):
        return value if key in NAMES else f"{value}{EVIL}"
    if isinstance(value, dict):
        return {name: poisoned(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [poisoned(entry, key) for entry in value]
    return value


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    design = Design(widths=(16, 32), budgets={"transformer": (2.0,)})
    return write_experiment(tmp_path_factory.mktemp("results"), design, draws=50)


@pytest.fixture
def page(experiment: Path, tmp_path: Path) -> Page:
    results = shutil.copytree(experiment, tmp_path / "results")
    for name in ("config.json", "analysis/claims.json"):
        content = json.loads((results / name).read_text())
        (results / name).write_text(json.dumps(poisoned(content)))
    config = json.loads((results / "config.json").read_text())
    look = {"label": f"LMU {EVIL}", "colour": "#0072b2", "marker": "o"}
    config["experiment"] = f"e {EVIL}"
    config.setdefault("paper", {})["looks"] = {"lmu": look}
    (results / "config.json").write_text(json.dumps(config))
    manifest = {"job": EVIL, "code": EVIL, "environment": {"cpu": EVIL, "packages": {"torch": EVIL}}}
    (results / "analysis/x.manifest.json").write_text(json.dumps(manifest))
    figures = tmp_path / "figures"
    figures.mkdir()
    for suffix in ("svg", "png"):
        (figures / f"training_curves.{suffix}").write_text(EVIL)
    (figures / "training_curves.caption.rst").write_text(f"A caption {EVIL}. And more {EVIL}.")
    return Page(results, figures)


def assert_harmless(shown: str) -> None:
    assert "&lt;img src=x" in shown, "the text itself is shown"
    assert "<img src=x" not in shown
    for attribute in re.findall(r'(?:alt|id|href)="([^"]*)"', shown):
        assert "onerror" not in attribute or "&" in attribute


@pytest.mark.parametrize("part", ["findings", "abstract", "verdicts", "provenance"])
def test_markup_in_data_is_shown_as_text(page: Page, part: str) -> None:
    assert_harmless(getattr(page, part)())


def test_markup_in_a_caption_is_shown_as_text(page: Page) -> None:
    shown = page.figure("training_curves", "Training curves")
    assert_harmless(shown)
    assert re.search(r"<figcaption>A caption &lt;img src=x[^<]*</figcaption>", shown)
    assert re.search(r'alt="A caption &lt;img src=x[^"<]*"', shown)


def test_markup_in_the_data_of_a_chart_stays_inside_it(page: Page) -> None:
    shown = page.figure("training_curves", "Training curves")
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', shown)
    assert "<" not in text
    names = {trace["name"] for trace in json.loads(text)["data"] if "name" in trace}
    assert "LMU &lt;img src=x onerror='alert(1)'&gt;\"&amp;" in names, "plotly.js reads markup in text"


def test_markup_in_a_table_is_shown_as_text(page: Page) -> None:
    shown = "".join(page.table(name, name) for name in inputs.modules("table"))
    assert_harmless(shown)


def test_what_a_cell_prints_is_shown_as_text() -> None:
    from nbformat import v4

    plain = v4.new_output("execute_result", data={"text/plain": EVIL})
    cell = v4.new_code_cell(outputs=[v4.new_output("stream", text=EVIL), plain])
    shown = _outputs(cell)
    assert shown.count("&lt;img src=x") == 2
    assert "<img" not in shown
