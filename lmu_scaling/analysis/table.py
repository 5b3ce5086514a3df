"""Tidy table with one row per run, the only input of all fits and figures (section 5, Results).

Runs are not averaged here. A run that diverged keeps its row, with the reason in `excluded`. Runs that cannot belong to
one experiment (different tokenizer, corpus, context or evaluation) are an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.counting import count
from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.runtime import atomic_write, read_json
from lmu_scaling.spec import Run, RunSpec, parse_run

SAME_FOR_ALL = ("corpus", "corpus_settings", "tokens_digest", "vocab", "context")
KEYS = ["variant", "size", "multiple", "seed"]


@job
def table(results: Folder, runs: list[str], out: Output, history: Output) -> dict[str, Any]:
    """Collect specs, results and evaluations into one tidy table, and training histories into one file.

    Args:
        results: folder results/<experiment>
        runs: names of the runs
        out: runs.csv
        history: history.parquet
    """
    _refuse_repeated_names(runs)
    table = pd.DataFrame([_row(results, parse_run(name)) for name in runs])
    check_table(table, str(results))
    write_csv(out, table)
    histories = _histories(results, runs)
    with atomic_write(history, "wb") as file:
        histories.to_parquet(file, index=False)
    excluded = table.loc[table["excluded"] != "", ["run", "excluded"]]
    for name, reason in excluded.itertuples(index=False):
        print(f"{name} is excluded from all fits: {reason}")
    return {"runs": len(table), "excluded": dict(excluded.itertuples(index=False))}


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    with atomic_write(path) as file:
        frame.to_csv(file, index=False)


def make_again(path: Path) -> str:
    return f"make it again: snakemake --cores all --forcerun {path}"


def read_frame(path: Path, columns: Iterable[str] = ()) -> pd.DataFrame:
    """Read a CSV or Parquet file of results; `columns` are those that the caller needs."""
    if not path.is_file():
        raise ResultsError("a result is missing", str(path), "run the workflow for this experiment first")
    text = {"run": str, "size": str, "excluded": str, "spec_hash": str}  # a size named "48" is a name, not a number
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
    columns = ("run", *KEYS, "n_exact", "tokens", "test_loss", "test_tokens", *SAME_FOR_ALL)
    table = read_frame(Path(path), columns)
    table["excluded"] = table["excluded"].fillna("") if "excluded" in table else ""
    check_table(table, str(path))
    return table


def usable(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that may enter a fit."""
    return table[table["excluded"] == ""].reset_index(drop=True)


def check_table(table: pd.DataFrame, where: str) -> None:
    """Raise on duplicates, runs of different experiments, and NaN losses that are not marked as excluded."""
    if table.empty:
        raise ResultsError("there are no runs to analyse", where, "train at least one model")
    duplicated = table.loc[table.duplicated(KEYS, keep=False), "run"].tolist()
    if duplicated:
        raise ResultsError(
            f"several rows for one run: {', '.join(duplicated)}", where, "keep one row per variant, size, budget, seed"
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
        "lr_on_edge": tuning.get("on_edge"),
        "lr_tried": len(tuning.get("trials", [])),
        "validation_loss": validation.get("loss"),
        "validation_se": validation.get("se_sequences"),
        "test_loss": test.get("loss"),
        "test_se": test.get("se_sequences"),
        "test_se_documents": test.get("se_documents"),
        "bits_per_byte": test.get("bits_per_byte"),
        "unigram_loss": test.get("unigram_loss"),
        "test_tokens": test.get("tokens"),
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
    path = results / "training" / "tuning" / f"{run.variant}-{run.size}.json"
    return read_json(path) if path.exists() else {}


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
