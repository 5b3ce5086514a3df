"""Table 2: parameters and FLOPs per token of one layer, by formula and as counted on the built models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.paper import load
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Math, Table

INPUTS = ("analysis/table2.csv", "analysis/counts.csv")


def rows(inputs: dict[str, Path], look: Look) -> Table:
    table = load.table(
        inputs["analysis/table2.csv"],
        "variant size layer operation repeats parameters_formula parameters parameters_measured flops_formula flops "
        "flops_measured",
    )
    sizes = load.size_names(load.table(inputs["analysis/counts.csv"], "size n_exact"))
    body = []
    for size in sizes:
        own = table[table["size"] == size]
        for _, same in own.groupby(["operation", "parameters", "flops"], sort=False):
            row = same.iloc[0]
            body.append(
                (
                    size,
                    ", ".join(look.label(variant) for variant in look.order(same["variant"])),
                    row["operation"],
                    Math(row["parameters_formula"]),
                    _count(row["parameters"]),
                    _count(row["parameters_measured"]),
                    Math(row["flops_formula"]),
                    _count(row["flops"]),
                    _count(row["flops_measured"]),
                )
            )
    return Table(
        "Parameters and FLOPs per token (forward pass) of one layer: formulas, their values, and counts on the built "
        "model",
        ("Size", "Models", "Operation", "Parameters", "value", "built", "FLOPs per token", "value", "built"),
        tuple(body),
        align="llllrrlrr",
        widths={1: 2.6},
        breakable=True,
        note="The paper lists one FFN; a block of the LMU has two. Their width d' is solved for each variant.",
    )


def _count(value: Any) -> int | None:
    return None if pd.isna(value) else round(float(value))
