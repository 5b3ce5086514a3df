"""Table 1: how memory and computation grow with sequence length; the stated terms beside measured exponents."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmu_scaling.paper import read
from lmu_scaling.paper.style import LAYERS, Look
from lmu_scaling.paper.tabulate import Math, Table, number, spread

INPUTS = ("analysis/complexity_slopes.csv",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    slopes = read.table(
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
        note="Exponents are slopes of log cost against log n; expected is the slope that the stated term has over "
        "these n; memory below 512 KiB, which is not told from noise, counts as equal. The terms of "
        "attention that is not materialised are not the paper's.",
    )


def _cells(own: pd.DataFrame, quantity: str) -> tuple[Math | str, str, str, str]:
    row = own[own["quantity"] == quantity]
    if row.empty:
        return "–", "–", "–", "–"
    first = row.iloc[0]
    term = str(first["stated"])
    stated = Math(f"O({term})") if term not in ("nan", "–", "") else "–"
    return stated, number(first["expected"], 2), number(first["slope"], 2), spread(first["low"], first["high"], 2)
