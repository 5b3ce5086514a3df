"""Which jobs an edit reruns, and which it does not: dry runs on a finished smoke run, from an edited copy of the code.

Each promise in the documentation, the configuration and docstrings about reruns has a test here.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lmu_scaling.config import load
from lmu_scaling.models import architecture
from tests.workflow.conftest import ROOT, Jobs, dry, edit_preset, snakemake

pytestmark = pytest.mark.slow

VARIANTS = load(ROOT / "config.yaml", ROOT / "workflow/presets/smoke.yaml").models.variants  # those that are trained
RUNS = {f"{variant}-{size}-x1-s{seed}" for variant in VARIANTS for size in ("2k", "6k") for seed in (1, 2)}
RUNS |= {"transformer-2k-x2-s1", "transformer-2k-x1-s1-rotary"}
TRIALS = {"2k": 3, "6k": 2}  # the larger size takes the embedding scale of the smaller one
SWEEPS = {f"{v}-{size}-x0.5-t{trial + 1}" for v in VARIANTS for size, n in TRIALS.items() for trial in range(n)}
PREPARATION = {"fetch", "encode", "shard", "index"}


def of(runs: set[str], chosen: set[str]) -> set[str]:
    return {run for run in runs if run.split("-")[0] in chosen}


def using(layer: str) -> set[str]:
    """Variants with this layer, or with one that is built on it."""
    layers = {layer, "attention_qk_norm"} if layer == "attention" else {layer}
    return {name for name in VARIANTS if layers & set(architecture(name).sublayers)}


@pytest.fixture
def after(smoke_run: Path, repository_copy: Callable[[], Path]) -> Callable[[Callable[[Path], None]], Jobs]:
    """The jobs of a dry run after an edit of the repository."""

    def jobs(edit: Callable[[Path], None]) -> Jobs:
        repository = repository_copy()
        edit(repository)
        return dry(smoke_run, root=repository)

    return jobs


# ------------------------------------------------------------------------------------------------------------- edits
def insert(file: str, function: str, statement: str) -> Callable[[Path], None]:
    """Put a statement at the start of a function."""

    def edit(repository: Path) -> None:
        path = repository / "lmu_scaling" / file
        tree = ast.parse(path.read_text("utf-8"))
        found = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
        found.body[:0] = ast.parse(statement).body
        path.write_text(ast.unparse(tree), "utf-8")

    return edit


def replace(file: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(repository: Path) -> None:
        path = repository / file
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    return edit


class Reword(ast.NodeTransformer):
    """Other words in every docstring, in every printed line and in every raised error."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        if isinstance(node.value, ast.Constant) or called == "print" or called.endswith((".say", ".log", ".warn")):
            return self.shout(node)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self.shout(node)

    def shout(self, node: ast.AST) -> ast.AST:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                part.value = part.value.upper()
        return node


def reword_everything(repository: Path) -> None:
    """Also drops all comments and formatting, and rewords comments and docstrings of the rules."""
    for path in (repository / "lmu_scaling").rglob("*.py"):
        path.write_text(ast.unparse(Reword().visit(ast.parse(path.read_text("utf-8")))), "utf-8")
    for path in [*(repository / "workflow").rglob("*.smk"), repository / "Snakefile"]:
        text = re.sub(r'"""(.+?)"""', r'"""\1 Reworded."""', path.read_text("utf-8"), flags=re.DOTALL)
        path.write_text(text + "\n# a comment\n", "utf-8")
    for path in (repository / "lmu_scaling/models/kernels").iterdir():
        path.write_text(path.read_text("utf-8") + "\n/* a comment */\n", "utf-8")


def document(repository: Path) -> None:
    for path in (repository / "docs").glob("*.md"):
        path.write_text(path.read_text("utf-8") + "\nOne more sentence.\n", "utf-8")


def add_a_source(repository: Path) -> None:
    path = repository / "lmu_scaling/catalog/datasets.yaml"
    path.write_text(path.read_text("utf-8") + "\nother:\n  kind: local\n  licence: mine\n  citation: me\n", "utf-8")


def touch(repository: Path) -> None:
    for path in repository.rglob("*"):
        os.utime(path)


def update_environments(repository: Path) -> None:
    for path in [*(repository / "envs").glob("*.yaml"), repository / "requirements.lock"]:
        path.write_text(path.read_text("utf-8").replace("==2.", "==3."), "utf-8")


# ---------------------------------------------------------------------------------------------------- nothing reruns
def test_a_second_run_has_nothing_to_do(smoke_run: Path) -> None:
    assert dry(smoke_run) == {}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda repository: None, id="another checkout of the same code"),
        pytest.param(touch, id="newer files"),
        pytest.param(reword_everything, id="comments, docstrings, messages and words of errors"),
        pytest.param(insert("training/monitor.py", "note", "run = run"), id="the progress line"),
        pytest.param(insert("training/train.py", "train", "print(f'training {spec}', flush=True)"), id="a log line"),
        pytest.param(document, id="documentation"),
        pytest.param(insert("corpus/filters/language.py", "apply", "text = 1 * text"), id="a filter that is not used"),
        pytest.param(add_a_source, id="another source in the catalogue"),
        pytest.param(update_environments, id="environment files"),
    ],
)
def test_what_cannot_change_a_number_reruns_nothing(edit, after) -> None:
    assert after(edit) == {}


def test_how_to_compute_reruns_nothing(smoke_run: Path) -> None:
    assert dry(smoke_run, "--set-resources", "train:micro_batch=2", "train:checkpoint_seconds=5") == {}


STAND_IN = """#!/bin/sh
case "$1" in
  --version) echo "conda 26.7.1" ;;
  info) echo '{"conda_prefix": "/nowhere", "platform": "linux-64", "conda_version": "26.7.1"}' ;;
  config) echo '{"get": {"channel_priority": "strict"}}' ;;
esac
"""


def test_toggling_conda_reruns_nothing(smoke_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run asks conda only for its version and settings; a stand-in that says these is enough."""
    conda = tmp_path / "bin" / "conda"
    conda.parent.mkdir()
    conda.write_text(STAND_IN)
    conda.chmod(0o755)
    monkeypatch.setenv("PATH", f"{conda.parent}:{os.environ['PATH']}")
    assert dry(smoke_run, "--use-conda") == {}


# ------------------------------------------------------------------------------------------------------ code of models
@pytest.mark.parametrize(
    ("edit", "chosen"),
    [
        *(
            pytest.param(insert(f"models/layers/{layer}.py", "forward", "x_bnd = 1.0 * x_bnd"), using(layer), id=layer)
            for layer in ("attention", "ffn", "lmu", "lstm")
        ),
        pytest.param(
            replace("lmu_scaling/models/variants/lstm.py", 'norm="layer_plain"', 'norm="layer"'),
            {"lstm"},
            id="variant",
        ),
        pytest.param(
            replace("lmu_scaling/models/kernels/convolution.c", "#include", "#define EDITED\n#include"),
            using("lmu"),
            id="kernel",
        ),
        pytest.param(
            replace("lmu_scaling/models/kernels/head.c", "#include", "#define EDITED\n#include"),
            set(VARIANTS),
            id="loss kernel",
        ),
    ],
)
def test_a_layer_is_retrained_in_the_variants_that_use_it_and_no_others(edit, chosen, after) -> None:
    jobs = after(edit)
    assert jobs.runs["train"] == of(RUNS | SWEEPS, chosen)
    assert jobs.runs["evaluate"] == of(RUNS, chosen)
    assert not PREPARATION & set(jobs)
    assert {"table", "fit", "claims", "report", "audit"} <= set(jobs)


def test_table_2_is_measured_again_for_an_edited_layer_and_table_1_for_those_it_measures(after) -> None:
    jobs = after(insert("models/layers/lstm.py", "forward_by_operation", "x_nd = 1.0 * x_nd"))
    assert "counts" in jobs and "complexity" not in jobs


@pytest.mark.parametrize(
    "edit",
    [
        insert("models/loss.py", "linear_cross_entropy", "h_td = 1.0 * h_td"),
        insert("models/network.py", "hidden", "ids_bn = 1 * ids_bn"),
        insert("training/loop.py", "accumulate", "inputs_bn = 1 * inputs_bn"),
        insert("training/train.py", "train", "threads = 1 * threads"),
    ],
    ids=["loss", "network", "loop", "train"],
)
def test_loss_network_and_training_loop_retrain_all_runs(edit, after) -> None:
    jobs = after(edit)
    assert jobs.runs["train"] == RUNS | SWEEPS
    assert jobs.runs["evaluate"] == RUNS
    assert not PREPARATION & set(jobs)


# ---------------------------------------------------------------------------------------------------- corpus, tokens
@pytest.mark.parametrize(
    ("edit", "begins"),
    [
        (replace("lmu_scaling/catalog/datasets.yaml", "citation: ", "citation: see "), "fetch"),
        (insert("corpus/filters/length.py", "apply", "text = 1 * text"), "encode"),
        (insert("tokens/encode.py", "encode", "parts = 1 * parts"), "encode"),
        (insert("tokens/shards.py", "shard", "part = 1 * part"), "encode"),  # its parts are temporary
    ],
    ids=["source", "filter", "encoder", "shards"],
)
def test_corpus_and_tokens_rerun_from_the_edited_stage_on(edit, begins, after) -> None:
    jobs, order = after(edit), ("fetch", "encode", "shard", "index")
    assert [name for name in order if name in jobs] == list(order[order.index(begins) :])
    assert jobs.runs["train"] == RUNS | SWEEPS


# ------------------------------------------------------------------------------------------- code of later stages
@pytest.mark.parametrize(
    ("edit", "needed", "others"),
    [
        (insert("evaluation/evaluate.py", "evaluate", "threads = 1 * threads"), {"evaluate", "table"}, {"train"}),
        (insert("analysis/fit.py", "fit", "results = results"), {"fit", "claims"}, {"evaluate", "table", "counts"}),
        (
            insert("analysis/claims/c10_reduced_order.py", "judge", "evidence = evidence"),
            {"claims", "report"},
            {"evaluate", "table", "fit", "counts"},
        ),
        (replace("lmu_scaling/catalog/paper.yaml", "\n", "\n\n"), {"fit", "claims"}, {"evaluate", "table", "counts"}),
        (
            insert("paper/figures/loss_vs_N.py", "draw", "look = look"),
            {"figure", "report", "audit"},
            {"fit", "claims", "paper_table"},
        ),
    ],
    ids=["evaluation", "analysis", "a claim", "the paper's numbers", "a figure"],
)
def test_later_stages_train_nothing(edit, needed, others, after) -> None:
    jobs = after(edit)
    assert needed <= set(jobs)
    assert not ({"train", "specify", "tune", *others} | PREPARATION) & set(jobs)


def test_an_edited_figure_is_the_only_one_drawn_again(after) -> None:
    assert after(insert("paper/figures/loss_vs_N.py", "draw", "look = look"))["figure"] == 1


# ------------------------------------------------------------------------------------------------------ configuration
def preset(change: Callable[[dict], None]) -> Callable[[Path], None]:
    return lambda repository: edit_preset(repository, change)


@pytest.mark.parametrize("look", [{"colour": "#123456"}, {"label": "Ours"}], ids=["colour", "label"])
def test_a_colour_or_a_label_is_drawn_again_and_nothing_else(look, after) -> None:
    whole = {"label": "LMU", "colour": "#0b84c6", "marker": "o"} | look
    jobs = after(preset(lambda preset: preset.update(paper={"looks": {"lmu": whole}})))
    assert "figure" in jobs
    assert set(jobs) <= {"all", "figure", "paper_table", "report", "effective_config", "audit"}


def test_one_sizes_hyper_parameter_retrains_that_size_only(after) -> None:
    """theta exists in the two LMU variants only."""
    jobs = after(preset(lambda preset: preset["models"]["sizes"][1].update(theta=60)))
    assert jobs.runs["train"] == {run for run in of(RUNS | SWEEPS, using("lmu")) if "-6k-" in run}
    assert jobs.runs["evaluate"] == {run for run in of(RUNS, using("lmu")) if "-6k-" in run}
    assert jobs["tune"] == 2
    assert not (PREPARATION | {"complexity"}) & set(jobs)
    assert {"table", "fit", "claims", "report", "audit"} <= set(jobs)


def test_another_seed_trains_the_new_runs_only(after) -> None:
    jobs = after(preset(lambda preset: preset["training"].update(seeds=[1, 2, 3])))
    new = {f"{variant}-{size}-x1-s3" for variant in VARIANTS for size in ("2k", "6k")}
    assert jobs.runs["train"] == jobs.runs["evaluate"] == new


def test_another_budget_trains_the_new_runs_only(after) -> None:
    jobs = after(preset(lambda preset: preset["training"]["budgets"][0].update(multiples=[2, 3])))
    assert jobs.runs["train"] == jobs.runs["evaluate"] == {"transformer-2k-x3-s1"}


def test_settings_of_the_evaluation_train_nothing(after) -> None:
    jobs = after(preset(lambda preset: preset["evaluation"].update(max_sequences=32)))
    assert jobs.runs["evaluate"] == RUNS
    assert not ({"train", "specify", "tune"} | PREPARATION) & set(jobs)


# ---------------------------------------------------------------------------------------------------------- products
def test_a_deleted_figure_costs_one_job(smoke_copy: Path) -> None:
    target = "paper_figures/loss_vs_N.pdf"
    (smoke_copy / target).unlink()
    assert dry(smoke_copy, "--", target) == {"figure": 1}
    done = snakemake(smoke_copy, "--", target)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (smoke_copy / target).stat().st_size > 0
    assert dry(smoke_copy, "--", "bundle") == {"audit": 1, "bundle": 1}, "the audit knows the figure's old manifest"
    done = snakemake(smoke_copy, "--", "bundle")
    assert done.returncode == 0, done.stdout[-3000:]


def test_another_experiment_shares_nothing_and_destroys_nothing(
    smoke_copy: Path, repository_copy: Callable[[], Path]
) -> None:
    repository = repository_copy()
    edit_preset(repository, lambda preset: preset.update(experiment="other"))
    found = dry(smoke_copy, root=repository)
    assert found["train"] == len(RUNS | SWEEPS)
    before = {p: p.stat().st_mtime_ns for p in (smoke_copy / "results/smoke").rglob("*") if p.is_file()}
    done = snakemake(smoke_copy, "--", "results/other/tokens/index.json", root=repository)
    assert done.returncode == 0, done.stdout[-3000:]
    assert before == {p: p.stat().st_mtime_ns for p in (smoke_copy / "results/smoke").rglob("*") if p.is_file()}
