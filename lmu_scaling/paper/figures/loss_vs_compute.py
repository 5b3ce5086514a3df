"""Test loss against training compute, as models of equal N differ in compute."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import errorbars, label_free_spot, log_axis, loss_axis, set_log_limits
from lmu_scaling.paper.style import SUBDUED, Look, tint
from lmu_scaling.runtime import si

INPUTS = ("analysis/runs.csv",)


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = load.runs(inputs["analysis/runs.csv"], "variant size multiple seed n_exact tokens flops test_loss test_se")
    figure = look.figure(2, 3.4, 3.4)
    axes = figure.subplots()
    axes.set_xscale("log")
    budgets = []
    for variant in look.order(runs["variant"]):
        mark, own = look.mark(variant), runs[runs["variant"] == variant]
        y, error = own["test_loss"], own["test_se"].fillna(0)
        errorbars(axes, own["flops"], y, y - error, y + error, mark, zorder=3, label=mark.label)
        for _, budget in own.groupby("multiple"):
            line = budget.groupby("flops", as_index=False)[["test_loss", "tokens"]].mean().sort_values("flops")
            axes.plot(line["flops"], line["test_loss"], color=tint(mark.colour, 0.3), linewidth=0.7, zorder=2)
            if own["multiple"].nunique() > 1:
                budgets.append(line)
    set_log_limits(axes, runs["flops"])
    loss_axis(axes)
    log_axis(axes.xaxis, "Training compute, head included [FLOP]", _power)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4 if look.wide(figure) else 2)
    for line in budgets:  # labelled at its start, the smallest size, or at its end
        spots = [(row["flops"], row["test_loss"]) for _, row in line.iloc[[0, -1]].iterrows()]
        label_free_spot(axes, spots, f"{si(line['tokens'].iloc[0])} tokens", SUBDUED)
    return figure, _caption(runs, look)


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")  # ticks may stand at 1.5
    lead = "" if mantissa == "1.0" else rf"{mantissa.removesuffix('.0')}\cdot "
    return f"${lead}10^{{{int(exponent)}}}$"


def _caption(runs: pd.DataFrame, look: Look) -> str:
    text = (
        "Test loss against training compute (forward and backward pass, output head included, counted by formula). "
        "Each marker is one run with its standard error over test sequences; thin lines join the means over seeds at "
        "one token budget. "
    )
    largest = runs.sort_values("n_exact")["size"].iloc[-1]
    main = runs[(runs["size"] == largest) & (runs["multiple"] == 1)].groupby("variant")["flops"].first()
    if {"lmu", "transformer"} <= set(main.index):
        text += (
            f"At size {largest} and equal tokens the {look.label('lmu')} costs "
            f"{main['lmu'] / main['transformer']:.2f} times the compute of the {look.label('transformer').lower()}."
        )
    return text
