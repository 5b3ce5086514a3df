"""Every figure, at both widths, from full, small and incomplete experiments."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from pydantic import TypeAdapter

from lmu_scaling.analysis.complexity import RESOLUTION
from lmu_scaling.errors import ResultsError
from lmu_scaling.paper import inputs, load, render, style
from lmu_scaling.paper.axes import label_free_spot, log_axis
from lmu_scaling.paper.figures import loss_difference, loss_vs_compute
from tests.synthetic import FIGURE_SETTINGS, PAPER_SCALE, SMALL_SCALE, Design, write_experiment

FIGURES = inputs.modules("figure")
CASES = {
    "embedded": SMALL_SCALE,
    "paper": PAPER_SCALE,
    "one_size": Design(widths=(32,)),
    "one_seed": Design(widths=(16, 32), seeds=(0,)),
    "no_attention": Design(variants=("lmu", "transformer", "lstm"), budgets={}),
    "no_transformer": Design(variants=("lmu", "lmu_attention"), budgets={}),
    "baselines_only": Design(variants=("transformer", "lstm"), widths=(16, 32)),
}


@pytest.fixture(scope="module")
def experiments(tmp_path_factory):
    return {name: write_experiment(tmp_path_factory.mktemp(name), case, draws=50) for name, case in CASES.items()}


def texts(figure):
    """The texts that are drawn: tick labels beyond the view exist, but never appear."""
    beyond = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-6 * (high - low)
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not low - slack <= tick.get_loc() <= high + slack or not axes.get_visible():
                    beyond |= {id(tick.label1), id(tick.label2)}
        if not axes.get_visible():
            beyond |= {id(text) for text in axes.findobj(Text)}
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in beyond
    ]


# Odd cases are drawn narrow only: a wide figure has more room. What does not depend on runs is drawn in few of them.
WITHOUT_RUNS = {"printed_laws", "lmu_implementations", "architecture", "complexity", "filter_report"}
DRAWN = [
    (name, case, columns)
    for name in FIGURES
    for case in CASES
    for columns in ((1, 2) if case in ("embedded", "paper") else (1,))
    if name not in WITHOUT_RUNS or case in ("embedded", "paper", "baselines_only")
]


@pytest.mark.parametrize(("name", "case", "columns"), DRAWN)
def test_nothing_is_clipped_hidden_or_empty(experiments, name, case, columns):
    with style.context():
        figure, caption = render.draw(name, experiments[case], style.Look(**FIGURE_SETTINGS, columns=columns))
        style.fix_layout(figure)
        figure.draw_without_rendering()
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
        width, height = figure.get_size_inches() * figure.dpi
    for text, box in boxes:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
        assert inside, f"{text!r} leaves the figure"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        slack = 0.25 * min(a.height, b.height)  # boxes include the space for descenders
        assert across <= 1 or down <= slack, f"{one!r} overlaps {other!r}"
    for axes in figure.axes:
        assert not axes.get_visible() or axes.has_data() or axes.texts or axes.patches, "an empty panel"
    assert figure.get_figwidth() == (style.ONE_COLUMN if columns == 1 else style.TWO_COLUMNS)
    assert len(caption) > 80
    assert "nan" not in caption


def test_runs_of_a_sensitivity_study_are_not_drawn(experiments, tmp_path):
    path = experiments["embedded"] / "analysis/runs.csv"
    plain = load.runs(path, "variant test_loss")
    frame = pd.read_csv(path)
    more = pd.concat([frame.assign(setting="main"), frame.head(3).assign(setting="scale 50")])
    more.to_csv(tmp_path / "runs.csv", index=False)
    kept = load.runs(tmp_path / "runs.csv", "variant test_loss")
    assert len(kept) == len(plain)
    assert set(kept["setting"]) == {"main"}


def test_the_printed_laws_are_drawn_over_their_own_range_without_the_experiment(experiments):
    with style.context():
        figure, caption = render.draw("printed_laws", experiments["embedded"], style.Look(**FIGURE_SETTINGS))
    for axes in figure.axes:
        ends = [(line.get_xdata()[0], line.get_xdata()[-1]) for line in axes.lines]
        assert ends == [(pytest.approx(55e3), pytest.approx(1e6))] * len(axes.lines)
    assert [len(axes.lines) for axes in figure.axes] == [4, 5]
    assert not any("embedded" in text.get_text() for text in texts(figure))
    assert "LMU 4.871 and 3.953" in caption  # as in docs/claims.md


def test_figure_5_has_the_printed_laws_of_both_lmu_models(experiments):
    with style.context():
        figure, _ = render.draw("loss_vs_N_10x", experiments["paper"], style.Look(**FIGURE_SETTINGS))
    shown = {text.get_text() for text in texts(figure)}
    assert {"paper: LMU", "paper: LMU + att.", "Kaplan: transformer, 10×"} <= shown


def test_ticks_of_compute_are_labelled_with_their_own_value():
    labels = [loss_vs_compute._power(value) for value in (1e12, 1.5e12, 2e12, 7e11)]
    assert labels == ["$10^{12}$", r"$1.5\cdot 10^{12}$", r"$2\cdot 10^{12}$", r"$7\cdot 10^{11}$"]


def test_the_lowest_panel_of_each_column_has_labelled_ticks(experiments):
    with style.context():
        for columns in (1, 2):
            figure, _ = render.draw("training_curves", experiments["embedded"], style.Look(columns=columns))
            figure.draw_without_rendering()
            shown = [axes for axes in figure.axes if axes.get_visible()]
            lowest = {round(axes.get_position().x0, 3): axes for axes in shown}  # by column; later ones are lower
            for axes in lowest.values():
                assert axes.get_xlabel() == "Tokens"
                assert any(text.get_visible() and text.get_text() for text in axes.get_xticklabels())


def test_a_label_keeps_clear_of_what_is_drawn():
    with style.context():
        axes = Figure(layout="constrained").subplots()
        axes.plot([0.5, 0.6], [0.5, 0.53], linestyle="none", marker="o")  # the second one where a label would be
        axes.set(xlim=(0, 1), ylim=(0, 1))
        label_free_spot(axes, [(0.5, 0.5)], "a label", "black")
    (text,) = axes.texts
    box = text.get_window_extent()
    assert not any(box.contains(*axes.transData.transform(point)) for point in ((0.5, 0.5), (0.6, 0.53)))


def test_a_narrow_logarithmic_axis_has_more_than_one_tick():
    with style.context():
        axes = Figure(figsize=(2.1, 1.8)).subplots()
        axes.set(xscale="log", xlim=(1.4e4, 1e6 / 1.05))
        log_axis(axes.xaxis, "Tokens")
    assert list(axes.xaxis.get_majorticklocs()) == pytest.approx([3e4, 1e5, 3e5])


def test_the_caption_of_slopes_says_what_counts_as_no_growth(experiments):
    with style.context():
        _, caption = render.draw("complexity", experiments["embedded"], style.Look(**FIGURE_SETTINGS))
    note = render.rows("table1", experiments["embedded"], style.Look()).note
    assert all(f"memory below {RESOLUTION // 1024} KiB" in text for text in (caption, note))


def test_a_missing_variant_is_said(experiments):
    with style.context():
        figure, caption = render.draw("per_token_loss", experiments["no_attention"], style.Look())
    assert any("LMU + attention was not trained" in text.get_text() for text in texts(figure))
    assert "LMU + attention was not trained in this experiment" in caption


def test_one_size_says_that_no_law_is_fitted(experiments):
    with style.context():
        _, caption = render.draw("loss_vs_N", experiments["one_size"], style.Look())
    assert "too few sizes to fit a law" in caption


def test_captions_say_that_the_printed_laws_belong_to_another_corpus(experiments):
    with style.context():
        _, small = render.draw("loss_vs_N", experiments["embedded"], style.Look())
        _, large = render.draw("loss_vs_N", experiments["paper"], style.Look())
    assert "another corpus and tokenizer" in small
    assert "extrapolations" in small
    assert "extrapolations" not in large


def test_a_law_that_could_not_be_fitted_is_said_and_its_runs_are_still_labelled(tmp_path):
    results = write_experiment(tmp_path, Design(widths=(16, 32), seeds=(0,), budgets={}), draws=50)
    path = results / "analysis" / "curves.csv"
    curves = pd.read_csv(path)
    curves.loc[curves["name"] == "transformer", ["loss", "low", "high"]] = math.nan
    curves.to_csv(path, index=False)
    with style.context():
        figure, caption = render.draw("loss_vs_N", results, style.Look())
    assert "No law could be fitted for Transformer." in caption
    assert {"LMU", "LMU + attention", "Transformer", "LSTM"} <= {text.get_text() for text in texts(figure)}


def test_a_missing_result_and_a_missing_column_are_explained(tmp_path):
    with style.context():
        with pytest.raises(ResultsError, match="needs results that are not there"):
            render.draw("loss_vs_N", tmp_path, style.Look())
        write_experiment(tmp_path, Design(widths=(16,), seeds=(0,)), draws=50)
        (tmp_path / "analysis" / "runs.csv").write_text("variant,size\nlmu,6k\n")
        with pytest.raises(ResultsError, match=r"columns are missing: .*multiple"):
            render.draw("loss_vs_N", tmp_path, style.Look())


def digests(name, results, out):
    files = {kind: out / f"{name}.{kind}" for kind in ("pdf", "svg", "png")}
    render.figure(name, results, style.Look(**FIGURE_SETTINGS), **files, caption=out / f"{name}.caption.rst")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def test_two_renderings_in_two_processes_are_byte_identical(experiments, tmp_path):
    names = ["architecture", "loss_vs_N", "training_curves", "filter_report"]
    here = {}
    for name in names:
        (tmp_path / "here").mkdir(exist_ok=True)
        here = digests(name, experiments["embedded"], tmp_path / "here")
    code = (
        "import sys; from pathlib import Path\n"
        "from lmu_scaling.paper import render, style\n"
        f"settings = style.Look(**{FIGURE_SETTINGS!r})\n"
        f"out = Path({str(tmp_path / 'there')!r}); out.mkdir()\n"
        f"for name in {names!r}:\n"
        "    files = {kind: out / f'{name}.{kind}' for kind in ('pdf', 'svg', 'png')}\n"
        f"    render.figure(name, Path({str(experiments['embedded'])!r}), settings, **files,\n"
        "                  caption=out / f'{name}.caption.rst')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": "7", "PATH": "/usr/bin"})
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "there").iterdir()}
    assert here == there


def test_fonts_are_embedded_and_nothing_is_fetched(experiments, tmp_path):
    digests("loss_vs_N", experiments["embedded"], tmp_path)
    pdf, svg = (tmp_path / "loss_vs_N.pdf").read_bytes(), (tmp_path / "loss_vs_N.svg").read_text()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"/CreationDate" not in pdf
    assert "<text" not in svg
    assert not re.search(r'(?:href|src)="(?!#)', svg)


def lightness(colour):
    """L* of CIELAB."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_variants_differ_in_grey_and_in_marker():
    marks = [style.default_mark(variant) for variant in style.MARKS]
    for a, b in itertools.combinations(marks, 2):
        assert abs(lightness(a.colour) - lightness(b.colour)) >= 15, (a.label, b.label)
        assert a.marker != b.marker


# Viénot, Brettel and Mollon (1999), linear RGB: what protanopes and deuteranopes see.
DICHROMATS = {
    "protanope": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deuteranope": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


@pytest.mark.parametrize("kind", DICHROMATS)
def test_variants_stay_apart_for_the_colour_blind(kind):
    def seen(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        mixed = [max(0.0, sum(w * c for w, c in zip(row, linear, strict=True))) for row in DICHROMATS[kind]]
        return [c ** (1 / 2.2) for c in mixed]

    for a, b in itertools.combinations([style.default_mark(variant) for variant in style.MARKS], 2):
        distance = sum((x - y) ** 2 for x, y in zip(seen(a.colour), seen(b.colour), strict=True)) ** 0.5
        assert distance > 0.2, (a.label, b.label)


def test_looks_of_the_configuration_win_and_unknown_variants_get_a_stable_one():
    given = {"experiment": "e", "marks": {"lmu": {"label": "Memory", "colour": "#123456", "marker": "x"}}}
    look = TypeAdapter(style.Look).validate_python(given)  # as the command line does
    assert look.mark("lmu") == style.Mark("Memory", "#123456", "x")
    assert look.mark("new_model") == style.Look().mark("new_model")
    assert look.label("new_model") == "new model"
    assert look.order(["zeta", "lstm", "lmu"]) == ["lmu", "lstm", "zeta"]


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=100)
def test_captions_survive_restructured_text(text):
    words = " ".join(text.split())
    assert render.from_rst(render.to_rst(words)) == words


def test_captions_are_clean_restructured_text(experiments, tmp_path):
    from docutils.core import publish_parts

    for name in FIGURES:
        with style.context():
            _, caption = render.draw(name, experiments["one_seed"], style.Look())
        strict = {"report_level": 1, "halt_level": 2}  # any complaint is an error
        page = publish_parts(render.to_rst(caption), writer="html", settings_overrides=strict)["body"]
        assert "system-message" not in page
        assert caption.split(".")[0].replace("<", "&lt;") in page


def test_differences_from_the_lmu_have_the_right_sign_and_alternatives_their_own_seed():
    size = {"size": "6k", "n": 6000.0, "difference": 0.2, "low": 0.1, "high": 0.4}
    entries = [
        {"a": "lmu", "b": "lstm", "multiple": 1.0, "per_size": [size]},
        {"a": "transformer", "b": "lmu", "multiple": 1.0, "per_size": [size]},
        {"a": "lmu", "b": "lstm", "multiple": 2.0, "per_size": [size]},
        {"a": "transformer", "b": "lstm", "multiple": 1.0, "per_size": [size]},
    ]
    found = loss_difference.differences(entries)[["variant", "difference", "low", "high"]]
    assert found.to_numpy().tolist() == [["lstm", 0.2, 0.1, 0.4], ["transformer", -0.2, -0.4, -0.1]]
    runs = pd.DataFrame(
        [
            ("lmu", 1, "main", 5.0),
            ("lmu", 2, "main", 4.0),
            ("transformer", 1, "main", 5.5),
            ("transformer", 2, "rotary", 4.1),
        ],
        columns=["variant", "seed", "setting", "test_loss"],
    ).assign(size="6k", multiple=1.0, n_exact=6000, excluded="")
    (row,) = loss_difference.alternatives(runs).to_dict("records")
    assert (row["variant"], row["setting"]) == ("transformer", "rotary")
    assert row["difference"] == pytest.approx(0.1)
    assert row["largest"] == loss_difference.TIE, "no run of the same seed to compare it with: it is drawn"


def test_settings_that_hardly_change_a_loss_are_only_named():
    """One size above the limit is enough for a setting to be drawn at all sizes."""
    runs = pd.DataFrame(
        [
            (setting, size, 5.0 + change)
            for setting, changes in (("main", (0, 0)), ("wide", (0.001, -0.04)), ("narrow", (0.02, -0.02)))
            for size, change in zip(("6k", "9k"), changes, strict=True)
        ],
        columns=["setting", "size", "test_loss"],
    ).assign(variant="lmu", seed=1, multiple=1.0, n_exact=6000, excluded="")
    found = loss_difference.alternatives(runs)
    assert set(found.loc[found["largest"] >= loss_difference.TIE, "setting"]) == {"wide"}
    assert found.loc[found["setting"] == "narrow", "effect"].tolist() == pytest.approx([0.02, -0.02])
