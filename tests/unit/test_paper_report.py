"""The report is one page that needs nothing but itself; a real browser agrees."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from lmu_scaling.errors import ResultsError
from lmu_scaling.paper import inputs, render, style
from lmu_scaling.paper import page as page_module
from lmu_scaling.paper.charts import embed
from lmu_scaling.paper.charts.embed import CHARTS
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
    assert page.count(embed.scripts()) == 1
    rest = page.replace(embed.scripts(), "")
    addresses = re.findall(r'(?:src|srcset|href|action|data)="([^"]*)"', rest)
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert not re.search(r"url\(|@import|<iframe|<object", rest)
    assert set(re.findall(r"<script[^>]*>", rest)) == {'<script type="application/json">'}, "scripts of nobody else"
    assert "default-src 'none'" in page


def test_the_policy_admits_our_two_scripts_and_no_others(page):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (sources,) = re.findall(r"script-src ([^;]*)", policy)
    texts = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    assert sources.split() == [f"'sha256-{digest}'" for digest in digests]
    assert len(digests) == 2
    assert "unsafe-eval" not in policy


def test_the_first_thing_on_the_page_is_what_was_found(made, page):
    start, experiment = page.index('<section class="findings">'), page.index('<h2 id="the-experiment">')
    assert page.index("</h1>") < start < experiment
    assert re.sub(r"\s", "", page[page.index("</h1>") + 5 : start]) == ""
    runs = pd.read_csv(made[0] / "analysis/runs.csv")
    main = runs[(runs["multiple"] == 1) & (runs["size"] == "d32")].groupby("variant")["test_loss"].mean()
    found = page[start:experiment]
    assert f"<strong>{style.Look().label(main.idxmin())}</strong> has the lowest test loss" in found
    assert f"<strong>{main.min():.3f}</strong>" in found


def test_what_comes_from_data_is_escaped(page):
    assert "&lt;b&gt;so&lt;/b&gt;" in page
    assert "<b>so</b>" not in page


def test_verdicts_come_before_figures_and_every_figure_and_table_is_there(page):
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
        drawn = "(image.closest('.live')?.querySelector('.chart') || image).clientWidth"
        images = tab.evaluate(f"[...document.images].map(image => [image.alt, image.naturalWidth, {drawn}])")
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


CHART = ".pair:has(#fig-loss_vs_N) .chart"
HIDDEN = f"document.querySelector('{CHART}').data.filter(trace => trace.visible === 'legendonly').length"
ENTRIES = f"[...document.querySelectorAll('{CHART} .legendtoggle')]"


@pytest.fixture
def tab(made):
    with browser.opened(made[2].as_uri(), 1280) as tab:
        tab.wait_until("[...document.querySelectorAll('.chart')].every(chart => chart.dataset.drawn)")
        yield tab


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
def test_a_pointer_sees_the_run_behind_a_marker(made, tab):
    assert tab.evaluate("document.querySelectorAll('.chart').length") == len(CHARTS)
    tab.page.locator(CHART).scroll_into_view_if_needed()
    marker = f"document.querySelector('{CHART} .scatterlayer .points path').getBoundingClientRect()"
    x, y, width, height = tab.evaluate(f"(box => [box.x, box.y, box.width, box.height])({marker})")
    tab.page.mouse.move(x + width / 2, y + height / 2)
    text = tab.page.locator(f"{CHART} .hoverlayer text").first.text_content()
    (name,) = re.findall(r"run (\S+)$", text)
    run = pd.read_csv(made[0] / "analysis/runs.csv").set_index("run").loc[name]
    for words in (f"size {run['size']}", f"seed {run['seed']}", f"loss {run['test_loss']:.3f} ± {run['test_se']:.3f}"):
        assert words in text
    assert tab.complaints == []


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
def test_the_legend_hides_and_shows_a_series_by_mouse_and_by_keyboard(tab):
    names = tab.evaluate(f"{ENTRIES}.map(entry => entry.getAttribute('aria-label'))")
    assert names[:2] == ["LMU", "LMU + attention"]
    before = tab.evaluate(HIDDEN)
    for press in ("Enter", " "):  # the second one shows it again
        tab.page.focus(f"{CHART} .legendtoggle")
        tab.page.keyboard.press(press)
        hidden = before + 3 if press == "Enter" else before  # points, law and band
        tab.wait_until(f"{HIDDEN} === {hidden}")
        state = "document.activeElement.getAttribute('aria-checked')"
        tab.wait_until(f"{state} === '{'false' if press == 'Enter' else 'true'}'")
    tab.page.click(f"{CHART} .legendtoggle")
    tab.wait_until(f"{HIDDEN} === {before + 3}")


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
def test_paper_shows_the_printed_figures(tab):
    tab.page.emulate_media(media="print")
    widths = "[...document.querySelectorAll('{0}')].map(element => element.clientWidth)"
    assert all(width > 200 for width in tab.evaluate(widths.format("figure img")))
    assert set(tab.evaluate(widths.format(".chart"))) == {0}


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
def test_why_a_claim_has_no_verdict_is_folded_away_and_printed(tab):
    shown = "[...document.querySelectorAll('.claim .why p')].map(element => element.checkVisibility())"
    assert set(tab.evaluate(shown)) == {False}
    tab.page.emulate_media(media="print")
    assert set(tab.evaluate(shown)) == {True}


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
def test_browsers_without_scripts_show_the_printed_figures(made):
    with browser.opened(made[2].as_uri(), 1280, scripts=False) as plain:
        figures, charts = plain.page.locator("figure img"), plain.page.locator(".chart")
        assert all(figures.nth(i).is_visible() for i in range(len(inputs.modules("figure"))))
        assert not any(charts.nth(i).is_visible() for i in range(len(CHARTS)))


@pytest.mark.browser
@needs(browser.executable(), "no Chromium on this machine")
def test_a_script_from_the_data_does_not_run(made, tmp_path):
    page = made[2].read_text("utf-8").replace("</main>", "<script>document.title = 'owned'</script></main>")
    (tmp_path / "report.html").write_text(page, "utf-8")
    with browser.opened((tmp_path / "report.html").as_uri(), 1280) as tab:
        assert tab.page.title() != "owned"
        assert any("Content Security Policy" in complaint for complaint in tab.complaints)
