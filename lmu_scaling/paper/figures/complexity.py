"""Measured time and memory of one layer against sequence length, with fitted slopes (the data of Table 1)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import EndLabel, label_ends, log_axis, powers_of_two
from lmu_scaling.paper.layers import Layers, legend
from lmu_scaling.paper.style import LAYERS, SMALL_MEMORY, Look, note

INPUTS = ("analysis/complexity.csv", "analysis/complexity_slopes.csv")
PANELS = (("compute", "seconds", "Time of one pass"), ("memory", "bytes", "Peak memory"))


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    points = load.table(inputs["analysis/complexity.csv"], "layer n seconds bytes")
    slopes = load.table(inputs["analysis/complexity_slopes.csv"], "layer quantity slope low high stated n_min n_max")
    tidy = pd.concat([points.assign(quantity=name, value=points[column]) for name, column, _ in PANELS])
    tidy = tidy[(tidy["value"] > 0) & tidy["layer"].isin(list(LAYERS))]
    marks = {name: mark for name, mark in LAYERS.items() if name in set(tidy["layer"])}
    figure = look.figure(2, 2.8, 4.8)
    plot = Layers("n", "value", "layer", marks, panel="quantity").marked_lines(tidy)
    order = [name for name, *_ in PANELS]
    panels = plot.panels(figure, order, 2 if look.wide(figure) else 1, x=True, y=False)
    for axes, (quantity, column, label) in zip(panels, PANELS, strict=True):
        own = tidy[tidy["quantity"] == quantity].sort_values("n")
        _finish(axes, own, slopes[slopes["quantity"] == quantity], column, label)
    legend(figure, marks, 4 if look.wide(figure) else 2)
    return figure, _caption(points, slopes)


def _finish(axes: Axes, own: pd.DataFrame, slopes: pd.DataFrame, column: str, label: str) -> None:
    """Ticks, and the fitted exponent at the end of each line."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    last = own.drop_duplicates("layer", keep="last").merge(slopes[["layer", "slope"]], on="layer")
    if last.empty:
        note(axes, "nothing was measured")
        return
    powers_of_two(axes.xaxis, list(own["n"]), "Sequence length n [tokens]")
    log_axis(axes.yaxis, label, _seconds if column == "seconds" else _bytes)
    ends = [
        EndLabel(row["n"], row["value"], f"$n^{{{row['slope']:.2f}}}$", LAYERS[row["layer"]].colour, 8)
        for _, row in last.iterrows()
    ]
    label_ends(axes, ends, gap=10.5)


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


def _bytes(value: float) -> str:
    bound, unit = next(((b, u) for b, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if value >= b), (1, "B"))
    return f"{value / bound:g} {unit}"


def _caption(points: pd.DataFrame, slopes: pd.DataFrame) -> str:
    text = (
        f"Measured time (left) and peak memory (right) of one layer, n = {points['n'].min():,} to "
        f"{points['n'].max():,}. Exponents are log–log slopes over n = {slopes['n_min'].min():,} to "
        f"{slopes['n_max'].max():,}; {SMALL_MEMORY}. "
    )
    for layer, mark in LAYERS.items():
        own = slopes[slopes["layer"] == layer].set_index("quantity")
        if {"compute", "memory"} <= set(own.index):
            time, memory = own.loc["compute"], own.loc["memory"]
            text += (
                f"{mark.label}: time {time['slope']:.2f} [{time['low']:.2f}, {time['high']:.2f}], "
                f"memory {memory['slope']:.2f} [{memory['low']:.2f}, {memory['high']:.2f}]; "
                f"stated: O({time['stated']}), O({memory['stated']}). "
            )
    return text
