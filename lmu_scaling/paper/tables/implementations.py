"""Appendix A: FLOPs per token of each way to update the memory, at the paper's largest model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmu_scaling.paper import load
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Math, Table

INPUTS = ("analysis/implementations.csv",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    table = load.table(
        inputs["analysis/implementations.csv"],
        "implementation symbol formula flops flops_counted d q q_reduced n",
    )
    fft = float(table.loc[table["symbol"] == "L_FFT", "flops"].iloc[0])
    body = []
    for row in table.to_dict("records"):
        counted = None if pd.isna(row["flops_counted"]) else round(row["flops_counted"])
        share = f"{row['flops'] / fft:.2f}"
        body.append((row["implementation"], row["symbol"], Math(row["formula"]), round(row["flops"]), counted, share))
    size = table.iloc[0]
    return Table(
        "FLOPs per token of the memory of one layer, by implementation (appendix A), at "
        f"d = {size['d']}, q = {size['q']}, q' = {size['q_reduced']}, n = {size['n']:,}",
        ("Implementation", "Symbol", "Formula", "FLOPs per token", "counted", "relative to L_FFT"),
        tuple(body),
        align="lllrrr",
        note="Counted: while the equations run, a multiply-add as two. State space and Runge-Kutta go token by token, "
        "the others need the whole sequence. Runge-Kutta is not implemented here. 𝔏 is L_FFT; the printed reduced "
        "order counts its factor d twice.",
    )
