"""The table of runs refuses or excludes what must not be averaged, and says so."""

import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from lmu_scaling.analysis.fit import fit
from lmu_scaling.analysis.notes import notes
from lmu_scaling.analysis.table import read_table, usable
from lmu_scaling.analysis.table import table as make_table
from lmu_scaling.errors import ResultsError
from lmu_scaling.runtime import read_json, write_json
from lmu_scaling.spec import RunSpec
from tests.synthetic import FIT, Design, write_results, write_table

DESIGN = Design(variants=("lmu", "transformer"), widths=(16, 24), budgets={}, sequences=20)


@pytest.fixture
def made(tmp_path):
    return tmp_path, write_results(tmp_path, DESIGN)


def table(root, runs):
    folder = root / "analysis"
    tunings = sorted((root / "training" / "tuning").glob("*.json"))
    make_table(root, runs, folder / "runs.csv", folder / "sensitivity.csv", folder / "history.parquet", tunings)
    return read_table(root / "analysis" / "runs.csv")


def run_fit(root):
    folder = root / "analysis"
    fit(
        folder / "runs.csv",
        root,
        **FIT | {"draws": 100},
        fits=folder / "fits.json",
        curves=folder / "curves.csv",
        multipliers=folder / "multipliers.csv",
        frontier=folder / "frontier.csv",
    )
    return json.loads((folder / "fits.json").read_text())


def edit(path, **changes):
    write_json(path, read_json(path) | changes)


def respec(root, run, change):
    """Change a run's spec, and its identity with it."""
    folder = root / "training" / run
    spec = read_json(folder / "spec.json")
    change(spec)
    write_json(folder / "spec.json", spec)
    edit(folder / "result.json", spec_hash=RunSpec.from_dict(spec).hash)
    edit(root / "evaluation" / run / "summary.json", spec_hash=RunSpec.from_dict(spec).hash)


def test_one_row_per_run_in_the_order_given(made):
    root, runs = made
    assert table(root, runs)["run"].tolist() == runs


def test_a_diverged_run_keeps_its_row_and_enters_no_fit(made, capsys):
    root, runs = made
    edit(root / "training" / runs[0] / "result.json", diverged=True)
    found = table(root, runs)
    assert found.loc[0, "excluded"] == "training diverged"
    assert runs[0] not in set(usable(found)["run"])
    assert f"{runs[0]} is excluded" in capsys.readouterr().out
    assert run_fit(root)["excluded"] == {runs[0]: "training diverged"}


def test_a_run_without_a_loss_is_excluded_by_name(made):
    root, runs = made
    path = root / "evaluation" / runs[1] / "summary.json"
    summary = read_json(path)
    summary["splits"]["test"]["loss"] = None
    write_json(path, summary)
    assert table(root, runs).loc[1, "excluded"] == "the test loss is not a number"


def test_an_unmarked_nan_in_the_table_is_refused(made):
    root, runs = made
    frame = table(root, runs)
    frame.loc[2, "test_loss"] = float("nan")
    frame.to_csv(root / "analysis" / "runs.csv", index=False)
    with pytest.raises(ResultsError, match=f"missing, infinite or not positive in {runs[2]}"):
        read_table(root / "analysis" / "runs.csv")


def test_a_run_named_twice_is_refused(made):
    root, runs = made
    with pytest.raises(ResultsError, match="named twice"):
        table(root, [*runs, runs[0]])


def test_a_duplicate_row_is_refused(made):
    root, runs = made
    frame = table(root, runs)
    pd.concat([frame, frame.iloc[:1]]).to_csv(root / "analysis" / "runs.csv", index=False)
    with pytest.raises(ResultsError, match="several rows for one run"):
        read_table(root / "analysis" / "runs.csv")


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("corpus", lambda spec: spec["data"].update(corpus="owt2")),
        ("corpus_settings", lambda spec: spec["data"].update(settings="feedfeedfeedfeed")),
        ("vocab", lambda spec: spec["model"].update(vocab=50257)),
        ("context", lambda spec: spec["model"].update(context=128)),
    ],
)
def test_runs_of_another_corpus_tokenizer_or_context_are_refused(made, column, change):
    root, runs = made
    respec(root, runs[-1], change)
    with pytest.raises(ResultsError, match=f"different {column} in one table"):
        table(root, runs)


def test_runs_evaluated_on_other_tokens_are_refused(made):
    root, runs = made
    for name in ("training", "evaluation"):
        edit(root / name / runs[-1] / ("result.json" if name == "training" else "summary.json"), tokens_digest="beef")
    with pytest.raises(ResultsError, match="different tokens_digest"):
        table(root, runs)


def test_an_evaluation_of_another_tokenizer_than_the_training_is_refused(made):
    root, runs = made
    edit(root / "evaluation" / runs[0] / "summary.json", tokens_digest="beef")
    with pytest.raises(ResultsError, match="other tokens than it was trained on"):
        table(root, runs)


@pytest.mark.parametrize("name", ["training/{}/result.json", "evaluation/{}/summary.json"])
def test_a_result_of_another_spec_is_refused(made, name):
    root, runs = made
    edit(root / name.format(runs[0]), spec_hash="0" * 16)
    with pytest.raises(ResultsError, match="belongs to another spec"):
        table(root, runs)


@pytest.mark.parametrize("name", ["training/{}/spec.json", "evaluation/{}/summary.json", "training/{}/history.parquet"])
def test_a_missing_file_is_named(made, name):
    root, runs = made
    path = root / name.format(runs[0])
    path.unlink()
    with pytest.raises(ResultsError) as error:
        table(root, runs)
    assert str(path) in error.value.where


def test_a_missing_seed_is_told_and_the_others_count(made):
    root, runs = made
    found = table(root, [run for run in runs if run != "lmu-d16-x1-s1"])
    assert any("lmu d16 x1: seeds [1] are missing" in note for note in notes(found))
    fits = run_fit(root)
    entry = next(e for e in fits["power"] if e["variant"] == "lmu")
    assert (entry["seeds"], entry["seeds_max"]) == (1, 2)


@pytest.mark.parametrize(
    ("edge", "told"),
    [
        ("learning_rate", "the best learning rate lies on the edge of the sweep at d16 x1, d24 x1"),
        ("learning_rate+embedding_scale", "the best learning rate and embedding scale lies on the edge"),
        ("untuned", "no sweep at d16 x1"),
    ],
)
def test_an_optimum_on_the_edge_of_the_sweep_is_told(made, edge, told):
    root, _ = made
    design = replace(DESIGN, edges={"lmu": edge})
    shutil.rmtree(root / "training")
    folder = write_table(root, write_results(root, design), design)
    found = notes(read_table(folder / "runs.csv"))
    assert any(told in note for note in found)
    assert not any(note.startswith("transformer") for note in found)


def test_a_table_that_does_not_tell_how_it_was_tuned_counts_as_untuned(made):
    root, runs = made
    path = write_table(root, runs, DESIGN) / "runs.csv"
    assert set(read_table(path)["tuning_edge"]) == {""}, "an empty cell is an optimum inside the sweep"
    pd.read_csv(path).drop(columns=["tuning_edge", "setting"]).to_csv(path, index=False)
    assert set(read_table(path)["tuning_edge"]) == {"untuned"}
    assert set(read_table(path)["setting"]) == {"main"}


def test_only_main_runs_are_fitted_and_a_run_may_be_repeated_in_another_setting(made):
    root, runs = made
    folder = write_table(root, runs, DESIGN)
    frame = pd.read_csv(folder / "runs.csv")
    before = run_fit(root)
    other = frame.assign(setting="rotary", test_loss=frame["test_loss"] + 1)
    pd.concat([frame, other]).to_csv(folder / "runs.csv", index=False)
    after = run_fit(root)
    assert after["comparisons"] == before["comparisons"]
    assert after["power"] == before["power"]
    by_paper = frame.assign(setting="paper", test_loss=frame["test_loss"] + 1)
    pd.concat([frame, by_paper]).to_csv(folder / "runs.csv", index=False)
    settings = {(e["variant"], e["setting"]): e["loss_at_mean"] for e in run_fit(root)["power"]}
    assert settings["lmu", "paper"] == pytest.approx(settings["lmu", "main"] + 1, abs=0.01)


def test_one_size_gives_levels_and_a_note_but_no_law(tmp_path):
    runs = write_results(tmp_path, replace(DESIGN, widths=(16,)))
    found = table(tmp_path, runs)
    fits = run_fit(tmp_path)
    assert any("one size only" in note for note in notes(found))
    assert not any(entry["fitted"] for entry in fits["power"])
    assert fits["comparisons"][0]["low"] < fits["comparisons"][0]["high"]


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_sizes_of_one_n_give_levels_but_no_law(tmp_path, seeds):
    """Two sizes may differ in q alone: then a transformer has the same N in both."""
    table(tmp_path, write_results(tmp_path, replace(DESIGN, widths=(16, 24, 32, 48), seeds=seeds)))
    path = tmp_path / "analysis" / "runs.csv"
    frame = pd.read_csv(path)
    frame.loc[frame["variant"] == "transformer", "n_exact"] = 12345
    frame.to_csv(path, index=False)
    fits = run_fit(tmp_path)
    fitted = {e["variant"]: e["fitted"] for e in fits["power"] if e["multiple"] == 1}
    assert fitted["lmu"] and not fitted["transformer"]
    assert not any(e["fitted"] for e in fits["saturating"] if e["variant"] == "transformer")
    mixed = [e for e in fits["comparisons"] if "transformer" in (e["a"], e["b"])]
    assert mixed and all(0 < e["high"] - e["low"] < 1 for e in mixed)
    curves = pd.read_csv(tmp_path / "analysis" / "curves.csv")
    assert curves.loc[curves["kind"] == "fit", "loss"].notna().all()


def test_one_seed_names_the_source_of_its_noise(tmp_path):
    table(tmp_path, write_results(tmp_path, replace(DESIGN, seeds=(0,))))
    fits = run_fit(tmp_path)
    assert "assumed" in fits["noise"]["lmu"]["source"]
    assert any("one seed per cell" in note for note in fits["notes"])


def test_a_missing_variant_leaves_the_rest(tmp_path):
    table(tmp_path, write_results(tmp_path, replace(DESIGN, variants=("lmu",))))
    fits = run_fit(tmp_path)
    assert [e["variant"] for e in fits["power"]] == ["lmu"]
    assert fits["comparisons"] == []
    assert fits["gain"] == []


def test_all_runs_excluded_is_an_error(made):
    root, runs = made
    for run in runs:
        edit(root / "training" / run / "result.json", diverged=True)
    table(root, runs)
    with pytest.raises(ResultsError, match="every run is excluded"):
        run_fit(root)


def test_runs_with_other_test_sequences_are_refused(made):
    root, runs = made
    path = root / "evaluation" / runs[-1] / "sequences.parquet"
    frame = pd.read_parquet(path)
    frame[frame["window"] < 10].to_parquet(path)
    table(root, runs)
    with pytest.raises(ResultsError, match="other test sequences"):
        run_fit(root)
