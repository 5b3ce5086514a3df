"""Reading what `analysis/` wrote: a missing file or column is explained, never a traceback from inside a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.errors import ResultsError
from lmu_scaling.runtime import read_json


def table(path: Path, columns: str) -> pd.DataFrame:
    """A CSV or Parquet table; `columns` are the space-separated ones that the caller relies on."""
    if not path.is_file():
        raise ResultsError("a result is missing", str(path), "run the workflow for this experiment first")
    try:
        # Size names such as "100k" or "48" are names, never numbers.
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype={"size": str})
    except (ValueError, OSError) as error:
        raise ResultsError(f"cannot be read: {error}", str(path), "delete it and run the workflow again") from error
    if missing := [name for name in columns.split() if name not in frame.columns]:
        raise ResultsError(
            f"columns are missing: {', '.join(missing)}",
            str(path),
            "the file was made by another version; delete it and run the workflow again",
        )
    return frame


def runs(path: Path, columns: str) -> pd.DataFrame:
    """The runs that count: a run that diverged has its reason in `excluded`, and no loss to draw."""
    frame = table(path, columns)
    out = frame["excluded"].notna() & frame["excluded"].ne("") if "excluded" in frame else frame["variant"].isna()
    kept = frame[~out].reset_index(drop=True)
    kept.attrs["excluded"] = int(out.sum())
    if kept.empty:
        raise ResultsError("every run is excluded", str(path), "see the column `excluded`, and train again")
    return kept


def excluded(frame: pd.DataFrame) -> str:
    """A sentence for the caption."""
    count = frame.attrs.get("excluded", 0)
    return f"{count} run{'s' * (count > 1)} that diverged {'are' if count > 1 else 'is'} not shown. " if count else ""


def record(path: Path) -> Any:
    """A JSON file."""
    return read_json(path)


def size_names(frame: pd.DataFrame) -> list[str]:
    """Sizes from small to large."""
    key = "n_exact" if "n_exact" in frame else "n"
    return list(frame.groupby("size", sort=False)[key].mean().sort_values(kind="stable").index)
