"""Dimensions and parameter counts of every model (the paper's rule: d = √(N/24))."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.paper import load
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Table

INPUTS = ("analysis/counts.csv",)
COLUMNS = (
    *("d", "target", "blocks", "q", "q_reduced", "theta", "heads", "ffn"),
    *("n_exact", "n_kaplan", "n_total", "flops_forward"),
)
NAMES = ("d", "24d²", "Blocks", "q", "q'", "θ", "Heads", "d'", "N", "N, matrices only", "Total", "FLOPs per token")


def rows(inputs: dict[str, Path], look: Look) -> Table:
    counts = load.table(inputs["analysis/counts.csv"], "variant size " + " ".join(COLUMNS))
    sizes = load.size_names(counts)
    order = look.order(counts["variant"])
    found = {(row["variant"], row["size"]): row for row in counts.to_dict("records")}
    body = tuple(
        (look.label(variant), size, *(_whole(found[variant, size][column]) for column in COLUMNS))
        for variant in order
        for size in sizes
        if (variant, size) in found
    )
    return Table(
        "The models: dimensions, trainable non-embedding parameters N, and forward FLOPs per token without the head",
        ("Variant", "Size", *NAMES),
        body,
        align="ll" + "r" * len(COLUMNS),
    )


def _whole(value: Any) -> int | float | None:
    if pd.isna(value):
        return None
    return int(value) if float(value).is_integer() else float(value)
