"""What `analysis` writes is what the paper stage reads: the whole way from synthetic runs to figures and tables."""

from __future__ import annotations

import json

import pytest
from matplotlib.text import Text

from lmu_scaling.paper import inputs, render, style
from tests.synthetic import FIGURE_SETTINGS, Design, write_experiment

pytestmark = pytest.mark.slow


DESIGNS = {
    "full": {"widths": (16, 24, 32)},
    "one size, one seed": {"widths": (16,), "seeds": (0,)},
    "short context": {"widths": (8, 16), "context": 64, "variants": ("lmu", "transformer"), "seeds": (0,)},
}


@pytest.fixture(scope="module", params=DESIGNS)
def results(request, tmp_path_factory):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    design = Design(**DESIGNS[request.param], budgets={"transformer": (2.0,)}, sequences=40)
    return write_experiment(tmp_path_factory.mktemp("results"), design)


@pytest.mark.parametrize("name", inputs.modules("figure"))
def test_every_figure_draws_what_analysis_writes(results, name):
    with style.context():
        figure, caption = render.draw(name, results, style.Look(**FIGURE_SETTINGS))
    assert "nan" not in caption
    assert not any("nan" in text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("name", inputs.modules("table"))
def test_every_table_shows_what_analysis_writes(results, name):
    assert render.rows(name, results, style.Look()).header


def test_the_table_of_claims_has_every_claim(results):
    claims = json.loads((results / "analysis" / "claims.json").read_text())
    assert [row[0] for row in render.rows("claims", results, style.Look()).rows] == [claim["id"] for claim in claims]
