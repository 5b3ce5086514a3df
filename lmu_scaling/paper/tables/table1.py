"""Table 1: growth of memory and compute with sequence length, stated and measured, in inference and in training."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmu_scaling.paper import load
from lmu_scaling.paper.style import LAYERS, SMALL_MEMORY, Look
from lmu_scaling.paper.tabulate import Math, Table, interval, number

INPUTS = ("analysis/complexity_slopes.csv",)
PASSES = {"forward": "", "forward + backward": "training_"}


def rows(inputs: dict[str, Path], look: Look) -> Table:
    slopes = load.table(
        inputs["analysis/complexity_slopes.csv"], "layer quantity slope low high stated expected n_min n_max"
    )
    body = []
    for layer in [name for name in LAYERS if name in set(slopes["layer"])]:
        own = slopes[slopes["layer"] == layer]
        for name, prefix in PASSES.items():
            cells = [cell for quantity in ("memory", "compute") for cell in _cells(own, f"{prefix}{quantity}")]
            body.append((LAYERS[layer].label, name, *cells))
    return Table(
        f"Memory and computation against sequence length: stated terms, and slopes measured for n = "
        f"{slopes['n_min'].min():,} to {slopes['n_max'].max():,}",
        ("Layer", "Pass", "Memory", "expected", "measured", "interval", "Compute", "expected", "measured", "interval"),
        tuple(body),
        align="llcrrlcrrl",
        note="The paper states its terms for training and inference. Forward is inference, forward + backward is "
        "training. The O(1) memory of the recurrent LMU does not hold for back-propagation, which needs the "
        "state of every step. Exponents are slopes of log cost against log n; expected is the slope of the stated term "
        f"over these n; {SMALL_MEMORY}. The terms of attention that is not materialised are not the paper's.",
    )


def _cells(own: pd.DataFrame, quantity: str) -> tuple[Math | str, str, str, str]:
    row = own[own["quantity"] == quantity]
    if row.empty:
        return "–", "–", "–", "–"
    first = row.iloc[0]
    stated = Math(f"O({first['stated']})")
    return stated, number(first["expected"], 2), number(first["slope"], 2), interval(first["low"], first["high"], 2)
