"""Measured time and memory of one layer against sequence length, with fitted slopes (the data of Table 1)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import EndLabel, label_ends, log_axis, powers_of_two
from lmu_scaling.paper.style import LAYERS, SMALL_MEMORY, Look, note

INPUTS = ("analysis/complexity.csv", "analysis/complexity_slopes.csv")
PANELS = (("compute", "seconds", "Time of one pass"), ("memory", "bytes", "Peak memory"))


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    points = load.table(inputs["analysis/complexity.csv"], "layer n seconds bytes")
    slopes = load.table(inputs["analysis/complexity_slopes.csv"], "layer quantity slope low high stated n_min n_max")
    figure, panels = look.panels(2, 2.8, 4.8, sharex=True)
    for axes, (quantity, column, label) in zip(panels, PANELS, strict=True):
        _panel(axes, points, slopes[slopes["quantity"] == quantity], column, label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4 if look.wide(figure) else 2)
    return figure, _caption(points, slopes)


def _panel(axes: Axes, points: pd.DataFrame, slopes: pd.DataFrame, column: str, label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends = []
    for layer in [name for name in LAYERS if name in set(points["layer"])]:
        name, colour, marker, dashes = LAYERS[layer]
        own = points[(points["layer"] == layer) & (points[column] > 0)].sort_values("n")
        if own.empty:
            continue
        axes.plot(own["n"], own[column], color=colour, marker=marker, linestyle=dashes, label=name)
        slope = slopes[slopes["layer"] == layer]
        if len(slope):
            text = f"$n^{{{slope['slope'].iloc[0]:.2f}}}$"
            ends.append(EndLabel(own["n"].iloc[-1], own[column].iloc[-1], text, colour, 8))
    if not ends:
        note(axes, "nothing was measured")
        return
    powers_of_two(axes.xaxis, list(points["n"]), "Sequence length n [tokens]")
    log_axis(axes.yaxis, label, _seconds if column == "seconds" else _bytes)
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
    for layer, (name, *_) in LAYERS.items():
        own = slopes[slopes["layer"] == layer].set_index("quantity")
        if {"compute", "memory"} <= set(own.index):
            time, memory = own.loc["compute"], own.loc["memory"]
            text += (
                f"{name}: time {time['slope']:.2f} [{time['low']:.2f}, {time['high']:.2f}], "
                f"memory {memory['slope']:.2f} [{memory['low']:.2f}, {memory['high']:.2f}]; "
                f"stated: O({time['stated']}), O({memory['stated']}). "
            )
    return text
