"""The workflow learns what a figure or table reads without importing it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from lmu_scaling.errors import ConfigError
from lmu_scaling.paper import inputs, render, style

ALL = [(kind, name) for kind in ("figure", "table") for name in inputs.modules(kind)]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_inputs_read_statically_are_the_modules_own(kind, name):
    module = importlib.import_module(f"lmu_scaling.paper.{inputs.FOLDERS[kind]}.{name}")
    assert inputs.inputs_of(kind, name) == module.INPUTS
    assert callable(module.draw if kind == "figure" else module.rows)


def test_every_figure_and_table_of_the_paper_is_there():
    assert {"lmu_implementations", "architecture", "loss_vs_N", "per_token_loss", "loss_vs_N_10x"} <= set(
        inputs.modules("figure")
    )
    assert {"table1", "table2"} <= set(inputs.modules("table"))


def test_an_unknown_name_is_explained_with_the_nearest_one():
    with pytest.raises(ConfigError) as error:
        inputs.inputs_of("figure", "loss_vs_M")
    assert "did you mean 'loss_vs_N'?" in str(error.value)
    assert "paper.figures" in str(error.value)


def test_a_job_that_is_given_an_unknown_name_explains_it_too(tmp_path):
    for make, name, nearest in ((render.draw, "loss_vs_M", "loss_vs_N"), (render.rows, "tabel1", "table1")):
        with pytest.raises(ConfigError, match=f"did you mean {nearest!r}"):
            make(name, tmp_path, style.Look())


def test_inputs_that_are_not_literal_are_explained(tmp_path, monkeypatch):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "odd.py").write_text('NAME = "a"\nINPUTS = tuple([NAME])\n')
    monkeypatch.setattr(inputs, "HERE", tmp_path)
    with pytest.raises(ConfigError, match="literal tuple"):
        inputs.inputs_of("figure", "odd")


def test_reading_inputs_imports_neither_matplotlib_nor_pandas():
    code = (
        "import sys; from lmu_scaling.paper.inputs import inputs_of, modules; "
        "[inputs_of('figure', name) for name in modules('figure')]; "
        "print([name for name in ('matplotlib', 'pandas', 'numpy', 'torch') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
