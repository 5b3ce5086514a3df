"""CONTRIBUTING.md, "Adding things": in a scratch copy, one new file for each thing, and the whole smoke workflow.

A layer, a variant, a filter, a claim, a figure, and a job with its rule. Nothing else is edited but the configuration.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import SMOKE, snakemake

pytestmark = pytest.mark.slow

LAYER = '''
"""A causal running mean with one gain per channel."""

from lmu_scaling.models.architecture import LayerDescription, Row, register_layer

register_layer(
    LayerDescription(
        name="toy_mean",
        fields=(),
        parameters=lambda spec: spec.d,
        rows=lambda spec: (Row("Mean", "–", 0, "d", spec.d),),
        activations=lambda spec: spec.d,
        builder=f"{__name__}:Mean",
    )
)

import torch

from lmu_scaling.models.layer import Layer


class Mean(Layer):
    def __init__(self, spec):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.empty(spec.d))

    def initialise(self, generator):
        torch.nn.init.normal_(self.gain, generator=generator)

    def forward(self, x_bnd):
        return self.gain * x_bnd.cumsum(1) / torch.arange(1, x_bnd.shape[1] + 1)[:, None]

    def initial_state(self, batch, device):
        return self.gain.new_zeros(batch, len(self.gain)), 0

    def step(self, x_bd, state):
        total, count = state[0] + x_bd, state[1] + 1
        return self.gain * total / count, (total, count)
'''

VARIANT = '''
"""A running mean, then an FFN."""

from lmu_scaling.models.architecture import Architecture, register

register(Architecture(name="toy_variant", label="Running mean", blocks=2, sublayers=("toy_mean", "ffn")))
'''

FILTER = '''
"""Filter `toy_letter`: documents must begin with one of the first letters of the alphabet."""

from typing import Literal

from pydantic import Field

from lmu_scaling.corpus.filters import DocumentFilter


class ToyLetterFilter(DocumentFilter):
    """Keep documents by their first letter."""

    name: Literal["toy_letter"]
    last: str = Field("F", description="Last letter that is kept")

    def apply(self, text: str, language: str | None, tokens: int) -> str | None:
        return text if text.lstrip()[:1].upper() <= self.last else None
'''

CLAIM = '''
"""C13: a toy claim."""

from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Verdict


def judge(evidence: Evidence) -> Finding:
    return Finding(Verdict.REPRODUCED, f"{len(evidence.runs)} runs", ours="toy")


CLAIM = Claim(
    id="C13", text="A toy claim", place="nowhere", printed="–", statistic="none", needs="anywhere",
    decision="Reproduced.", bounds="none", files=("analysis/runs.csv",), judge=judge,
)
'''

FIGURE = '''
"""A toy figure: test loss of every run."""

from lmu_scaling.paper import load

INPUTS = ("analysis/runs.csv",)


def draw(inputs, look):
    runs = load.runs(inputs["analysis/runs.csv"], "run test_loss")
    figure = look.figure(1, 2.0)
    figure.subplots().plot(runs["test_loss"].to_numpy(), "o")
    return figure, f"Test loss of {len(runs)} runs."
'''

HANDLER = '''
"""A toy job: count the rows of a table."""

from lmu_scaling.jobs import Input, Output, job


@job
def toy_count(table: Input, unit: str, out: Output) -> dict:
    """Count the rows of a table.

    Args:
        table: a CSV file
        unit: what a row is
        out: the count
    """
    rows = len(table.read_text().splitlines()) - 1
    out.write_text(f"{rows} {unit}")
    return {"rows": rows}
'''

RULE = '''

rule toy_count:
    """Count the runs."""
    input:
        table=f"{ANALYSIS}/runs.csv",
    output:
        out=f"{ANALYSIS}/toy_count.txt",
        manifest=f"{ANALYSIS}/toy_count.manifest.json",
    log:
        f"{RESULTS}/logs/toy_count.log",
    conda:
        f"{ENVS}/analysis.yaml"
    params:
        unit="runs",
        code=code("toy-count"),
    shell:
        command("toy-count")
'''

FILES = {
    "models/layers/toy_mean.py": LAYER,
    "models/variants/toy_variant.py": VARIANT,
    "corpus/filters/toy_letter.py": FILTER,
    "analysis/claims/c13_toy.py": CLAIM,
    "paper/figures/toy_figure.py": FIGURE,
    "analysis/toy_count.py": HANDLER,
}


def test_each_new_thing_is_one_file_and_goes_through_the_whole_workflow(
    repository_copy: Callable[[], Path], tmp_path: Path
) -> None:
    repository = repository_copy()
    for name, text in FILES.items():
        (repository / "lmu_scaling" / name).write_text(text.lstrip(), "utf-8")
    with open(repository / "workflow/rules/analysis.smk", "a") as file:
        file.write(RULE)
    preset = yaml.safe_load((repository / SMOKE).read_text())
    preset["corpus"]["filters"].insert(0, {"name": "toy_letter"})
    preset["models"]["variants"] = ["toy_variant"]
    preset["training"] |= {"seeds": [1], "budgets": []}
    preset["paper"] = {"figures": ["toy_figure", "loss_vs_N"], "tables": ["table2", "claims"]}
    (repository / SMOKE).write_text(yaml.safe_dump(preset))

    directory = tmp_path / "work"
    results = directory / "results/smoke"
    count = "results/smoke/analysis/toy_count.txt"
    done = snakemake(directory, "--", "all", count, root=repository)
    assert done.returncode == 0, done.stdout[-5000:]

    filters = {row["filter"]: row for row in csv.DictReader(open(results / "tokens/report.csv"))}
    assert int(filters["toy_letter"]["dropped_documents"]) > 0
    operations = list(csv.DictReader(open(results / "analysis/table2.csv")))
    assert {row["layer"] for row in operations} == {"toy_mean", "ffn"}
    runs = list(csv.DictReader(open(results / "analysis/runs.csv")))
    assert {row["variant"] for row in runs} == {"toy_variant"}
    claims = json.loads((results / "analysis/claims.json").read_text())
    assert claims[-1]["id"] == "C13" and claims[-1]["verdict"] == "reproduced"
    assert (directory / "paper_figures/toy_figure.pdf").stat().st_size > 0
    assert (directory / count).read_text() == f"{len(runs)} runs"
    manifest = json.loads((results / "analysis/toy_count.manifest.json").read_text())
    assert (
        manifest["rows"] == len(runs) and set(manifest["inputs"]) == {"table"} and set(manifest["outputs"]) == {"out"}
    )
