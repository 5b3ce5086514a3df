"""The report is one page that needs nothing but itself; a real browser agrees."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import nbformat
import pytest

from lmu_scaling.errors import ResultsError
from lmu_scaling.paper import inputs, render, style
from lmu_scaling.paper import page as page_module
from lmu_scaling.paper.report import report
from tests.needs import needs
from tests.synthetic import FIGURE_SETTINGS, Design, write_experiment
from tests.unit import browser

NOTEBOOK = Path(__file__).resolve().parents[2] / "workflow" / "notebooks" / "replication.ipynb"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    design = Design(widths=(16, 32), budgets={"transformer": (2.0,)})
    results = write_experiment(tmp_path_factory.mktemp("results"), design, draws=50)
    claims = json.loads((results / "analysis/claims.json").read_text())
    claims[0]["claim"] += " & <b>so</b> on"
    (results / "analysis/claims.json").write_text(json.dumps(claims))
    figures = tmp_path_factory.mktemp("figures")
    for name in inputs.modules("figure"):
        files = {kind: figures / f"{name}.{kind}" for kind in ("pdf", "svg", "png")}
        render.figure(name, results, style.Look(**FIGURE_SETTINGS), **files, caption=figures / f"{name}.caption.rst")
    out = tmp_path_factory.mktemp("report") / "report.html"
    report(results, figures, out)
    return results, figures, out


@pytest.fixture(scope="module")
def page(made):
    return made[2].read_text("utf-8")


def test_nothing_is_fetched(page):
    addresses = re.findall(r'(?:src|srcset|href|action|data)="([^"]*)"', page)
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert not re.search(r"url\(|@import|<script|<iframe|<object", page)
    assert "default-src 'none'" in page


def test_what_comes_from_data_is_escaped(page):
    assert "&lt;b&gt;so&lt;/b&gt;" in page
    assert "<b>so</b>" not in page


def test_verdicts_come_first_and_every_figure_and_table_is_there(page):
    order = [page.index(f'<h2 id="{name}">') for name in ("verdicts", "loss-against-size", "deviations", "provenance")]
    assert order == sorted(order)
    for name in inputs.modules("figure"):
        assert f'id="fig-{name}"' in page
    assert page.count("<img ") == len(inputs.modules("figure"))
    for name in ("fits", "table1", "table2", "sizes", "deviations"):
        assert f'id="table-{name}"' in page
    assert page.count('<article class="claim"') == 12


def test_runs_on_other_budgets_are_not_counted_among_those_on_the_main_one(made, page):
    multiples = [float(row["multiple"]) for row in csv.DictReader((made[0] / "analysis/runs.csv").open())]
    main = multiples.count(1)
    assert 0 < main < len(multiples)
    assert re.search(rf"{main} runs were trained: .*, and {len(multiples) - main} more on other token budgets", page)


def test_negative_values_have_a_minus_and_not_a_hyphen():
    assert page_module._minus("ratio -0.73, (N / 3e14)^-0.07") == "ratio −0.73, (N / 3e14)^−0.07"
    assert page_module._minus("1.3e-15 and lmu-2") == "1.3e-15 and lmu-2"


def test_ids_are_unique_and_internal_links_have_targets(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(ids)
    assert len(links) > 10


def test_two_reports_are_byte_identical(made, tmp_path):
    results, figures, out = made
    report(results, figures, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == out.read_bytes()


def test_no_machine_path_is_written(made, page):
    results, figures, _ = made
    for path in (results, figures, NOTEBOOK.parents[2], Path.home()):
        assert str(path) not in page


def test_a_failing_cell_is_explained(tmp_path):
    with pytest.raises(ResultsError, match="a result is missing") as error:
        report(tmp_path / "nothing", tmp_path, tmp_path / "report.html")
    assert "a cell of the notebook failed" in str(error.value)
    assert not (tmp_path / "report.html").exists()


def test_the_notebook_is_stored_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_report_without_complaint(made, width):
    url = made[2].as_uri()
    with browser.opened(url, width) as tab:
        images = tab.evaluate("[...document.images].map(image => [image.alt, image.naturalWidth, image.clientWidth])")
        assert len(images) == len(inputs.modules("figure"))
        assert all(natural > 0 and 200 < shown <= width for _, natural, shown in images), images
        overflow = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, "the page scrolls sideways"
        links = tab.evaluate('[...document.querySelectorAll("a[href]")].map(link => link.getAttribute("href"))')
        for link in dict.fromkeys(links):
            assert tab.evaluate(f"document.querySelector('a[href=\"{link}\"]').click(), location.hash") == link
            assert tab.evaluate(f"document.getElementById({json.dumps(link[1:])}) !== null")
        assert tab.complaints == []
        assert all(address.startswith(("data:", url)) for address in tab.requests), tab.requests
