"""Every table in three spellings; the LaTeX one compiles."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.paper import decisions, docs, inputs, render, style, tabulate
from lmu_scaling.sections import Config
from tests.needs import needs
from tests.synthetic import FIGURE_SETTINGS, SMALL_SCALE, Design, write_experiment

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = inputs.modules("table")
CASES = {"embedded": SMALL_SCALE, "one_size": Design(widths=(32,), seeds=(0,))}


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory):
    results = write_experiment(tmp_path_factory.mktemp("results"), CASES[request.param], draws=50)
    out = tmp_path_factory.mktemp("tables")
    for name in TABLES:
        files = {kind: out / f"{name}.{kind}" for kind in ("tex", "csv", "md")}
        render.paper_table(name, results, style.Look(**FIGURE_SETTINGS), **files)
    return out


def test_all_spellings_have_the_same_shape(written):
    for name in TABLES:
        rows = list(csv.reader(io.StringIO((written / f"{name}.csv").read_text())))
        lines = [line for line in (written / f"{name}.md").read_text().splitlines() if line.startswith("|")]
        tex = (written / f"{name}.tex").read_text()
        assert len(lines) == len(rows) + 1, name  # the line of dashes
        assert {len(re.split(r"(?<!\\)\|", line)) - 2 for line in lines} == {len(rows[0])}, name
        assert tex.count(r"\\") >= len(rows), name
        assert r"\toprule" in tex
        assert "|" not in re.search(r"\\begin\{(?:long|tabular).*", tex)[0], "booktabs has no vertical rules"


def test_csv_keeps_numbers_as_numbers(written):
    rows = list(csv.DictReader(io.StringIO((written / "sizes.csv").read_text())))
    assert all(row["N"].isdigit() for row in rows)


@pytest.mark.tex
@needs(shutil.which("pdflatex"), "no pdflatex on this machine")
def test_latex_compiles_in_a_minimal_document(written, tmp_path):
    body = "\n".join((written / f"{name}.tex").read_text() + r"\clearpage" for name in TABLES)
    (tmp_path / "main.tex").write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage[utf8]{inputenc}\n"
        "\\usepackage[landscape,margin=1cm]{geometry}\n\\usepackage{booktabs,array,longtable}\n"
        f"\\begin{{document}}\n{body}\n\\end{{document}}\n"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "main.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "Missing character" not in run.stdout
    wide = [float(found) for found in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", run.stdout)]
    assert max(wide, default=0) < 20, f"a table is {max(wide):.0f} pt too wide for a landscape page"


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=200)
def test_any_text_is_escaped_for_latex(text):
    out = tabulate.escape(text)
    assert out.isprintable() or "\n" not in out
    assert not re.search(r"(?<!\\)[%#&]", out)
    assert out.count("$") - out.count(r"\$") == 2 * len(re.findall(r"(?<!\\)\$[^$]*\$", out.replace(r"\$", "")))


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=200)
def test_any_text_stays_in_its_markdown_cell_and_its_html_cell(text):
    table = tabulate.Table("t", ("a", "b"), ((text, tabulate.Code(text)),))
    body = tabulate.markdown(table).split("\n\n", 1)[1]
    assert len([line for line in re.split(r"[\n\r]", body.strip()) if line]) == 3
    assert "<script" not in tabulate.html(tabulate.Table("t", ("a",), ((text + "<script>",),)))
    assert "<script" not in tabulate.html(tabulate.Table("t", ("a",), ((tabulate.Code(text + "<script>"),),)))


def test_a_long_name_breaks_at_its_joints():
    page = tabulate.html(tabulate.Table("t", ("a",), ((tabulate.Code("models/a_b.py"),),)))
    assert "<code>models/<wbr>a_<wbr>b.<wbr>py</code>" in page


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
        (0.072, "0.072"),
        (1.95e14, "1.95 × 10¹⁴"),
        (-0.5, "−0.500"),
    ],
)
def test_numbers_read_as_in_a_paper(value, text):
    assert tabulate.number(value) == text


# ------------------------------------------------------------------------------------------------------- deviations
@pytest.mark.parametrize("name", docs.pages())
def test_a_generated_page_is_in_step_with_the_code(name):
    assert (docs.DOCS / name).read_text("utf-8") == docs.pages()[name], f"run: {docs.COMMAND}"


ALL = [decision for section in decisions.SECTIONS.values() for decision in section]


@pytest.mark.parametrize("key", sorted({decision.key for decision in ALL if "/" not in decision.key}))
def test_a_decision_names_a_key_that_the_configuration_has(key):
    schema = Config.model_json_schema()
    node = schema
    for part in key.split("."):
        assert part in node["properties"], f"{key}: no {part}"
        node = node["properties"][part]
        options = [node, *node.get("allOf", []), *node.get("anyOf", []), node.get("items", {})]
        for option in options:
            if "$ref" in option:
                node = schema["$defs"][option["$ref"].rsplit("/", 1)[-1]]


@pytest.mark.parametrize("path", sorted({decision.key for decision in ALL if "/" in decision.key}))
def test_a_decision_names_a_file_that_exists(path):
    assert (REPOSITORY / path).exists()


def test_every_decision_has_a_reason():
    assert all(decision.why and decision.ours and decision.paper for decision in ALL)


def test_a_decision_is_plain_words():
    """Cells are escaped, so a backtick would be shown as one, and LaTeX would take it for a quotation mark."""
    assert not [decision.item for decision in ALL if "`" in "".join(decision)]


def test_the_table_of_deviations_shows_the_configured_value(tmp_path):
    results = write_experiment(tmp_path, Design(widths=(16,), seeds=(0,)), draws=50)
    shown = {row[0]: row[-1] for row in render.rows("deviations", results, style.Look()).rows}
    assert shown["Window θ"] == "4.0"
    assert shown["Seeds"] == "0"
