"""Load results of `analysis/` for figures and tables; a missing file or column is explained."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmu_scaling.analysis.table import read_frame
from lmu_scaling.errors import ResultsError


def table(path: Path, columns: str) -> pd.DataFrame:
    """Load a CSV or Parquet table; `columns`: those that the caller needs, separated by spaces."""
    return read_frame(path, columns.split())


def main_setting(frame: pd.DataFrame) -> pd.DataFrame:
    """Without runs of a sensitivity study, which differ from the experiment's own in a nuisance setting."""
    return frame[frame["setting"] == "main"].reset_index(drop=True) if "setting" in frame else frame


def runs(path: Path, columns: str) -> pd.DataFrame:
    """Load the main runs that are not excluded: a run that diverged has no loss to draw."""
    frame = main_setting(table(path, columns))
    excluded = frame["excluded"].notna() & frame["excluded"].ne("") if "excluded" in frame else frame["variant"].isna()
    kept = frame[~excluded].reset_index(drop=True)
    kept.attrs["excluded"] = int(excluded.sum())
    if kept.empty:
        raise ResultsError("every run is excluded", str(path), "see the column `excluded`, and train again")
    return kept


def excluded_note(frame: pd.DataFrame) -> str:
    """A sentence for the caption."""
    count = frame.attrs.get("excluded", 0)
    return f"{count} run{'s' * (count > 1)} that diverged {'are' if count > 1 else 'is'} not shown. " if count else ""


def size_names(frame: pd.DataFrame) -> list[str]:
    """Sizes from small to large."""
    key = "n_exact" if "n_exact" in frame else "n"
    return list(frame.groupby("size", sort=False)[key].mean().sort_values(kind="stable").index)
