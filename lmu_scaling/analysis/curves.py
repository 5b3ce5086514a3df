"""Fitted and reference laws on a grid of N, for figures 3 and 5 (figures only draw).

All models are tested on the same text. Another sample of documents would shift all curves together, which says nothing
about the models and would hide how well their differences are known. So `low` and `high` are intervals without that
common shift, and `common` is half the width of its own interval, both in nats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import Cells
from lmu_scaling.analysis.laws import fit_power
from lmu_scaling.analysis.reference import power_laws, transformer_law

Array = NDArray[np.float64]
CURVE_POINTS = 60


def all_curves(cells: Cells, paper: dict[str, Any]) -> pd.DataFrame:
    """Fits over the sizes of each variant; reference laws over all sizes that were trained."""
    frames = []
    shift_b = common_shift(cells)
    below, above = cells.interval(shift_b)
    own = replace(cells, log_loss=cells.log_loss - shift_b[:, None])
    keys: Any
    for keys, group in cells.frame.groupby(["variant", "multiple"], sort=False):
        variant, multiple = str(keys[0]), float(keys[1])
        rows = cells.select(variant, multiple)
        if cells.distinct_n(rows) < 2:
            continue
        n = np.geomspace(group["n"].min(), group["n"].max(), CURVE_POINTS)
        counts = cells.frame.loc[rows, "n"].to_numpy(float)
        weights = cells.frame.loc[rows, "seeds"].to_numpy(float)
        loss = np.exp(fit_power(counts, cells.point[None, rows], weights).log_loss(n)[0])
        low, high = own.interval(np.exp(fit_power(counts, own.log_loss[:, rows], weights).log_loss(n)))
        common = loss * (above - below) / 2
        values = {"n": n, "loss": loss, "low": low, "high": high, "common": common, "tokens": group["tokens"].iloc[0]}
        frames.append(_curve("fit", variant, multiple, f"fit:{variant}", variant, values))
    low, high = float(cells.frame["n"].min()), float(cells.frame["n"].max())
    n = np.geomspace(low, high, CURVE_POINTS) if high > low else np.geomspace(low / 2, low * 2, CURVE_POINTS)
    frames += _references(paper, n)
    return pd.concat(frames, ignore_index=True)


def common_shift(cells: Cells) -> Array:
    """Mean deviation of ln L over all cells, in each draw; zero if there is one variant, with nothing to compare."""
    if cells.frame["variant"].nunique() < 2:
        return np.zeros(len(cells.log_loss))
    shift: Array = (cells.log_loss - cells.point).mean(axis=1)
    return shift


def _references(paper: dict[str, Any], n: Array) -> list[pd.DataFrame]:
    printed, tokens = paper["experiment"], paper["experiment"]["tokens"]
    frames = []
    for name, law in power_laws(paper).items():
        label, multiple = paper["power_laws"][name]["label"], float(paper["power_laws"][name].get("multiple", 1))
        values = {"n": n, "loss": law.loss(n), "tokens": tokens * multiple}
        frames.append(_curve("reference", f"paper_{name}", multiple, f"reference:paper_{name}", label, values))
    for reading, label in paper["transformer_law"]["readings"].items():
        kaplan = transformer_law(paper, reading)
        for multiple in (1.0,) if reading == "literal" else (1.0, 10.0, np.inf):
            name = "kaplan" if reading == "kaplan_comment" else reading
            values = {"n": n, "loss": kaplan.loss(n, printed["steps"] * multiple), "tokens": tokens * multiple}
            frames.append(_curve("reference", name, multiple, f"reference:{reading}", label, values))
    return frames


def _curve(kind: str, name: str, multiple: float, series: str, label: str, values: dict[str, Any]) -> pd.DataFrame:
    labels = {"kind": kind, "name": name, "multiple": multiple, "series": series, "label": label}
    frame = pd.DataFrame({"low": np.nan, "high": np.nan, "common": np.nan} | values | labels)
    return frame[["kind", "name", "multiple", "n", "loss", "low", "high", "common", "tokens", "series", "label"]]
