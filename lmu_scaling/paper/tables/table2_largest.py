"""Table 2 at the paper's largest model, whatever the experiment's own sizes are."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.paper import load
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Math, Table

INPUTS = ("analysis/table2_largest.csv",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    table = load.table(
        inputs["analysis/table2_largest.csv"],
        "variant operation parameters_formula parameters parameters_measured flops_formula flops flops_measured",
    )
    body = []
    for _, same in table.groupby(["operation", "parameters", "flops_formula"], sort=False, dropna=False):
        row = same.iloc[0]
        models = ", ".join(look.label(variant) for variant in look.order(same["variant"]))
        counts = [None if pd.isna(row[name]) else round(float(row[name])) for name in ("flops", "flops_measured")]
        parameters = (Math(row["parameters_formula"]), int(row["parameters"]), int(row["parameters_measured"]))
        body.append((models, row["operation"], *parameters, Math(row["flops_formula"]), *counts))
    printed = load_paper()["experiment"]
    size = printed["largest"]
    return Table(
        "Parameters and FLOPs per token (forward pass) of one layer of the paper's largest model: "
        f"d = {size['d']}, q = {size['q']}, q' = {size['q_reduced']}, n = {printed['context']:,}",
        ("Models", "Operation", "Parameters", "value", "built", "FLOPs per token", "value", "built"),
        tuple(body),
        align="lllrrlrr",
        widths={0: 2.6},
        note="Built: counted on a network of this size while the equations run as printed. Transforms have n + 1 "
        "frequencies where Table 2 has n. The paper lists one FFN; a block of the LMU has two.",
    )
