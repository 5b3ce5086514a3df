"""Table 1: growth of memory and compute with sequence length, stated and measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmu_scaling.paper import load
from lmu_scaling.paper.style import LAYERS, SMALL_MEMORY, Look
from lmu_scaling.paper.tabulate import Math, Table, interval, number

INPUTS = ("analysis/complexity_slopes.csv",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    slopes = load.table(
        inputs["analysis/complexity_slopes.csv"], "layer quantity slope low high stated expected n_min n_max"
    )
    body = []
    for layer in [name for name in LAYERS if name in set(slopes["layer"])]:
        cells = [
            cell for quantity in ("memory", "compute") for cell in _cells(slopes[slopes["layer"] == layer], quantity)
        ]
        body.append((LAYERS[layer][0], *cells))
    return Table(
        f"Memory and computation against sequence length: stated terms, and slopes measured for n = "
        f"{slopes['n_min'].min():,} to {slopes['n_max'].max():,}",
        ("Layer", "Memory", "expected", "measured", "interval", "Compute", "expected", "measured", "interval"),
        tuple(body),
        align="lcrrlcrrl",
        note="Exponents are slopes of log cost against log n; expected is the slope of the stated term over these n; "
        f"{SMALL_MEMORY}. The terms of attention that is not materialised are not the paper's.",
    )


def _cells(own: pd.DataFrame, quantity: str) -> tuple[Math | str, str, str, str]:
    row = own[own["quantity"] == quantity]
    if row.empty:
        return "–", "–", "–", "–"
    first = row.iloc[0]
    stated = Math(f"O({first['stated']})")
    return stated, number(first["expected"], 2), number(first["slope"], 2), interval(first["low"], first["high"], 2)
