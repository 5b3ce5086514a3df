"""Tidy table with one row per run, the only input of all fits and figures (section 5, Results).

Runs are not averaged here. A run that diverged keeps its row, with the reason in `excluded`. Runs that cannot belong to
one experiment (different tokenizer, corpus, context or evaluation) are an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.counting import count
from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Folder, Inputs, Output, job
from lmu_scaling.runtime import atomic_write, read_json
from lmu_scaling.spec import MAIN, PAPER_RECIPE, Run, RunSpec, parse_run

SAME_FOR_ALL = ("corpus", "corpus_settings", "tokens_digest", "vocab", "context")
KEYS = ["variant", "size", "multiple", "seed", "setting"]
TUNED = ("learning_rate", "embedding_scale")
SENSITIVITY = ["variant", "size", "multiple", "kind", "setting", "value", "reference", "loss", "effect"]
UNTUNED = "untuned"
# What a table that does not tell is taken for: nothing that would earn a verdict.
SETTINGS: dict[str, str | float] = {
    "setting": MAIN,
    "positions": "",
    "embedding_scale": math.nan,
    "tuning_edge": UNTUNED,
    "tuning_trials": 0,
    "tuning_multiple": math.nan,
    "precision": "",
    "test_documents": 0,
}


@job
def table(
    results: Folder,
    runs: list[str],
    out: Output,
    sensitivity: Output,
    history: Output,
    tunings: Inputs | None = None,
) -> dict[str, Any]:
    """Collect specs, results and evaluations into one tidy table, and training histories into one file.

    Args:
        results: folder results/<experiment>
        runs: names of the runs
        out: runs.csv
        sensitivity: sensitivity.csv, what each setting that was tried changes
        history: history.parquet
        tunings: judged sweeps (training/tuning/*.json); none with recipe `paper`
    """
    _refuse_repeated_names(runs)
    table = pd.DataFrame([_row(results, parse_run(name)) for name in runs])
    check_table(table, str(results))
    write_csv(out, table)
    write_csv(sensitivity, _sensitivity(results, table, tunings or []))
    histories = _histories(results, runs)
    with atomic_write(history, "wb") as file:
        histories.to_parquet(file, index=False)
    excluded = table.loc[table["excluded"] != "", ["run", "excluded"]]
    for name, reason in excluded.itertuples(index=False):
        print(f"{name} is excluded from all fits: {reason}")
    return {"runs": len(table), "excluded": dict(excluded.itertuples(index=False))}


TEXT = ("run", "size", "excluded", "spec_hash", "setting", "positions", "tuning_edge", "precision")


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    with atomic_write(path) as file:
        frame.to_csv(file, index=False)


def make_again(path: Path) -> str:
    return f"make it again: snakemake --cores all --forcerun {path}"


def read_frame(path: Path, columns: Iterable[str] = ()) -> pd.DataFrame:
    """Read a CSV or Parquet file of results; `columns` are those that the caller needs."""
    if not path.is_file():
        raise ResultsError("a result is missing", str(path), "run the workflow for this experiment first")
    text = dict.fromkeys(TEXT, str)  # a size named "48" is a name, not a number
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=text)
    except (ValueError, OSError) as error:
        raise ResultsError(f"cannot be read: {error}", str(path), make_again(path)) from error
    if missing := [name for name in columns if name not in frame.columns]:
        raise ResultsError(
            f"columns are missing: {', '.join(missing)}",
            str(path),
            f"the file was made by another version; {make_again(path)}",
        )
    return frame


def read_table(path: str | Path) -> pd.DataFrame:
    """Read `runs.csv` and check it again, in case it was edited."""
    columns = (
        "run",
        "variant",
        "size",
        "multiple",
        "seed",
        "n_exact",
        "tokens",
        "test_loss",
        "test_tokens",
        *SAME_FOR_ALL,
    )
    table = read_frame(Path(path), columns)
    for column, default in ({"excluded": ""} | SETTINGS).items():
        table[column] = table.get(column, default)
    for column in ("excluded", "setting", "positions", "tuning_edge", "precision"):
        table[column] = table[column].fillna("")  # an empty cell
    check_table(table, str(path))
    return table


def main_runs(table: pd.DataFrame, setting: str = MAIN) -> pd.DataFrame:
    """Rows that may enter a fit, of one setting; runs with other nuisance settings are in sensitivity.csv."""
    rows = usable(table)
    return rows[rows["setting"] == setting].reset_index(drop=True)


def usable(table: pd.DataFrame) -> pd.DataFrame:
    """Rows whose losses may be used."""
    return table[table["excluded"] == ""].reset_index(drop=True)


def check_table(table: pd.DataFrame, where: str) -> None:
    """Raise on duplicates, runs of different experiments, and NaN losses that are not marked as excluded."""
    if table.empty:
        raise ResultsError("there are no runs to analyse", where, "train at least one model")
    duplicated = table.loc[table.duplicated(KEYS, keep=False), "run"].tolist()
    if duplicated:
        raise ResultsError(
            f"several rows for one run: {', '.join(duplicated)}",
            where,
            "keep one row per variant, size, budget, seed, setting",
        )
    for column in SAME_FOR_ALL:
        _refuse_mixture(table, column, where)
    losses = table[["validation_loss", "test_loss"]] if "validation_loss" in table else table[["test_loss"]]
    bad = table.loc[(table["excluded"] == "") & ~_finite_positive(losses), "run"].tolist()
    if bad:
        raise ResultsError(
            f"a loss is missing, infinite or not positive in {', '.join(bad)}",
            where,
            "evaluate again, or give the reason in the column `excluded`",
        )


def _finite_positive(losses: pd.DataFrame) -> pd.Series:
    return ((losses > 0) & (losses < math.inf)).all(axis=1)


def _refuse_mixture(table: pd.DataFrame, column: str, where: str) -> None:
    groups = table.groupby(column, dropna=False)["run"].agg(["count", "first"])
    if len(groups) > 1:
        told = "; ".join(f"{value}: {row['count']} runs, e.g. {row['first']}" for value, row in groups.iterrows())
        raise ResultsError(
            f"runs with different {column} in one table ({told})",
            where,
            "their losses cannot be compared: use one experiment per corpus, tokenizer and context",
        )


def _refuse_repeated_names(runs: list[str]) -> None:
    repeated = [name for name, times in Counter(runs).items() if times > 1]
    if repeated:
        raise ResultsError(f"runs named twice: {', '.join(repeated)}", "list of runs", "name each run once")


def _row(results: Path, run: Run) -> dict[str, Any]:
    folder = results / "training" / run.name
    spec, result = RunSpec.read(folder / "spec.json"), read_json(folder / "result.json")
    summary_path = results / "evaluation" / run.name / "summary.json"
    summary = read_json(summary_path)
    for name, found in (("result.json", result["spec_hash"]), ("summary.json", summary["spec_hash"])):
        if found != spec.hash:
            raise ResultsError(
                f"{name} of {run.name} belongs to another spec ({found}, not {spec.hash})",
                str(folder),
                make_again(folder / name),
            )
    if summary["tokens_digest"] != result["tokens_digest"]:
        raise ResultsError(
            f"{run.name} was evaluated on other tokens than it was trained on", str(summary_path), "evaluate it again"
        )
    return _columns(run, spec, result, summary, _tuning(results, run))


def _columns(
    run: Run,
    spec: RunSpec,
    result: dict[str, Any],
    summary: dict[str, Any],
    tuning: dict[str, Any],
) -> dict[str, Any]:
    model, training = spec.model, spec.training
    counts = count(model)
    test, validation = summary["splits"].get("test", {}), summary["splits"].get("validation", {})
    return {
        "run": run.name,
        **{key: getattr(run, key) for key in KEYS},
        "d": model.d,
        "n_exact": counts.n_exact,
        "n_kaplan": counts.n_kaplan,
        "n_total": counts.n_total,
        "context": model.context,
        "vocab": model.vocab,
        "corpus": spec.data.corpus,
        "corpus_settings": spec.data.settings,
        "tokens_digest": summary["tokens_digest"],
        "batch": training.batch,
        "steps": training.steps,
        "tokens": spec.tokens,
        "epochs": result.get("epochs"),
        "learning_rate": training.learning_rate,
        "embedding_scale": model.embedding_scale,
        "positions": model.positions,
        "tuning_edge": "+".join(tuning["edges"]) if tuning else "untuned",
        "tuning_trials": len(tuning.get("trials", [])),
        "tuning_multiple": tuning.get("multiple"),
        "precision": result.get("machine", {}).get("precision"),
        "validation_loss": validation.get("loss"),
        "validation_se": validation.get("se_sequences"),
        "test_loss": test.get("loss"),
        "test_se": test.get("se_sequences"),
        "test_se_documents": test.get("se_documents"),
        "bits_per_byte": test.get("bits_per_byte"),
        "unigram_loss": test.get("unigram_loss"),
        "test_tokens": test.get("tokens"),
        "test_documents": test.get("documents"),
        "final_loss": result.get("final_loss"),
        "flops_per_token": counts.flops_training,
        "flops_per_token_body": counts.flops_training_body,
        "flops": float(counts.flops_training * spec.tokens),
        "flops_body": float(counts.flops_training_body * spec.tokens),
        "seconds": result.get("machine", {}).get("seconds"),
        "spec_hash": spec.hash,
        "diverged": bool(result.get("diverged")),
        "excluded": _why_excluded(result, validation, test),
    }


def _why_excluded(result: dict[str, Any], validation: dict[str, Any], test: dict[str, Any]) -> str:
    if result.get("diverged"):
        return "training diverged"
    for name, split in (("validation", validation), ("test", test)):
        loss = split.get("loss")
        if loss is None or not math.isfinite(loss):
            return f"the {name} loss is not a number"
    return ""


def _tuning(results: Path, run: Run) -> dict[str, Any]:
    """The sweep behind a run: of its own budget or the main one, of its own size or the one that lends its settings.

    None with the paper's recipe.
    """
    if run.setting == PAPER_RECIPE:
        return {}
    folder = results / "training" / "tuning"
    for size in (run.size, "*"):
        for multiple in (run.multiple, 1.0):
            for path in sorted(folder.glob(f"{run.variant}-{size}-x{multiple:g}.json")):
                return read_json(path)
    return {}


# ------------------------------------------------------------------------------------------------------- sensitivity
def _sensitivity(results: Path, table: pd.DataFrame, tunings: list[Path]) -> pd.DataFrame:
    """Validation loss of every setting that was tried, less that of the setting that was used."""
    rows = [row for path in tunings for row in _trials(path)]
    others = table[~table["setting"].isin([MAIN, PAPER_RECIPE]) & (table["excluded"] == "")]
    for _, other in others.iterrows():
        main = table[(table["setting"] == MAIN) & (table["excluded"] == "")]
        for key in ("variant", "size", "multiple", "seed"):
            main = main[main[key] == other[key]]
        if not main.empty:
            rows.append(_alternative(results, other, main.iloc[0]))
    return pd.DataFrame(rows, columns=SENSITIVITY)


def _trials(path: Path) -> Iterator[dict[str, Any]]:
    """Sweep runs that differ from the best one in one value only."""
    tuning = read_json(path)
    run = parse_run(f"{tuning['cell']}-t1")
    best = {key: tuning[key] for key in TUNED}
    chosen = next(trial for trial in tuning["trials"] if all(trial[key] == best[key] for key in TUNED))
    for trial in tuning["trials"]:
        changed = [key for key in TUNED if trial[key] != best[key]]
        if len(changed) == 1 and not trial["diverged"]:
            (key,) = changed
            yield {
                **{name: getattr(run, name) for name in ("variant", "size", "multiple")},
                **{"kind": "trial", "setting": key, "value": trial[key], "reference": best[key]},
                "loss": trial["validation_loss"],
                "effect": trial["validation_loss"] - chosen["validation_loss"],
            }


def _alternative(results: Path, other: pd.Series, main: pd.Series) -> dict[str, Any]:
    """One run that differs from a main run in one setting."""
    specs = [RunSpec.read(results / "training" / row["run"] / "spec.json").asdict() for row in (main, other)]
    flat = [{**spec["model"], **spec["training"]} for spec in specs]
    changed = [key for key in flat[0] if flat[0][key] != flat[1][key]]
    return {
        **{name: other[name] for name in ("variant", "size", "multiple")},
        "kind": "alternative",
        "setting": "+".join(changed) or other["setting"],
        "value": "+".join(str(flat[1][key]) for key in changed),
        "reference": "+".join(str(flat[0][key]) for key in changed),
        "loss": other["validation_loss"],
        "effect": other["validation_loss"] - main["validation_loss"],
    }


def _histories(results: Path, runs: list[str]) -> pd.DataFrame:
    frames = []
    for name in runs:
        path, run = results / "training" / name / "history.parquet", parse_run(name)
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise ResultsError(f"cannot read a training history: {error}", str(path), "train the run again") from error
        for position, column in enumerate(KEYS):
            frame.insert(position, column, getattr(run, column))
        frame.insert(0, "run", name)
        frames.append(frame)
    return pd.concat([frame.dropna(axis=1, how="all") for frame in frames], ignore_index=True)
