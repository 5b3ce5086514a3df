"""Test loss against training compute, as models of equal N differ in compute."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import label_free_spot, log_axis, loss_axis, set_log_limits
from lmu_scaling.paper.layers import Layers, legend
from lmu_scaling.paper.style import SUBDUED, Look
from lmu_scaling.runtime import si

INPUTS = ("analysis/runs.csv", "analysis/frontier.csv")


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    columns = "run variant size multiple seed n_exact tokens flops test_loss test_se"
    runs = load.runs(inputs["analysis/runs.csv"], columns)
    error = runs["test_se"].fillna(0)
    runs = runs.assign(low=runs["test_loss"] - error, high=runs["test_loss"] + error)
    figure = look.figure(2, 3.4, 3.4)
    axes = figure.subplots()
    marks = {variant: look.mark(variant) for variant in look.order(runs["variant"])}
    plot = Layers("flops", "test_loss", "variant", marks)
    best = load.table(inputs["analysis/frontier.csv"], "variant flops loss low high n tokens edge")
    best = best[best["variant"].isin(marks)].rename(columns={"loss": "test_loss"})
    plot.means(runs, group="multiple", linewidth=0.7, alpha=0.35 if len(best) else 0.7).points(runs)
    plot.bands(best).lines(best, linewidth=1.4).on(axes)
    axes.set_xscale("log")
    set_log_limits(axes, runs["flops"])
    loss_axis(axes)
    log_axis(axes.xaxis, "Training compute, head included [FLOP]", _power)
    legend(figure, marks, 5 if look.wide(figure) else 2, line=False)
    for spots, tokens in _budgets(runs):
        label_free_spot(axes, spots, f"{si(tokens)} tokens", SUBDUED)
    return figure, _caption(runs, best, look)


def _budgets(runs: pd.DataFrame) -> list[tuple[list[tuple[float, float]], float]]:
    """Both ends of the highest line of each budget, and its tokens; none if all runs have one budget."""
    if runs["multiple"].nunique() < 2:
        return []
    found = []
    for _, budget in runs.groupby("multiple"):
        first = budget["variant"] == budget.sort_values("test_loss")["variant"].iloc[-1]
        mean = budget[first].groupby("flops")["test_loss"].mean().sort_index()
        found.append(([(mean.index[i], mean.iloc[i]) for i in (0, -1)], budget["tokens"].iloc[0]))
    return found


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")  # ticks may stand at 1.5
    lead = "" if mantissa == "1.0" else rf"{mantissa.removesuffix('.0')}\cdot "
    return f"${lead}10^{{{int(exponent)}}}$"


def _caption(runs: pd.DataFrame, best: pd.DataFrame, look: Look) -> str:
    text = (
        "Test loss against training compute (forward and backward pass, output head included, counted by formula). "
        "Each marker is one run with its standard error over test sequences; thin lines join the means over seeds at "
        "one token budget. "
    )
    if len(best):
        text += (
            "Bold lines with bands: the lowest loss for a compute, over sizes and token counts inside the range that "
            "was trained, by the law in N and tokens of each variant. "
        )
        inside = best["edge"].fillna("").eq("").groupby(best["variant"], sort=False).mean()
        shares = ", ".join(f"{look.label(str(variant))} {share:.0%}" for variant, share in inside.items())
        text += f"Share of the line on which no bound of that range decides: {shares}. "
    largest = runs.sort_values("n_exact")["size"].iloc[-1]
    main = runs[(runs["size"] == largest) & (runs["multiple"] == 1)].groupby("variant")["flops"].first()
    if {"lmu", "transformer"} <= set(main.index):
        text += (
            f"At size {largest} and equal tokens the {look.label('lmu')} costs "
            f"{main['lmu'] / main['transformer']:.2f} times the compute of the {look.label('transformer').lower()}."
        )
    return text
