"""Training and validation loss against tokens, one panel per size."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import log_axis, loss_axis
from lmu_scaling.paper.style import Look, tint

INPUTS = ("analysis/history.parquet", "analysis/counts.csv")
START = 0.01  # share of the tokens that is not drawn: all models are alike there


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    history = load.table(
        inputs["analysis/history.parquet"], "run variant size multiple seed tokens loss validation_loss"
    )
    counts = load.table(inputs["analysis/counts.csv"], "size d n_exact")
    history = history[(history["multiple"] == 1) & (history["tokens"] >= START * history["tokens"].max())]
    sizes = [size for size in load.size_names(counts) if size in set(history["size"])]
    figure, panels, across = _grid(look, len(sizes))
    for axes, size in zip(panels, sizes, strict=False):
        _panel(axes, history[history["size"] == size], look)
        axes.set_title(f"{size} (d = {counts.loc[counts['size'] == size, 'd'].iloc[0]})", loc="left")
    for axes in panels[: len(sizes)]:
        axes.set_ylim(*_range(history))
        loss_axis(axes, "Loss [nats]")
        log_axis(axes.xaxis, "Tokens")
        axes.label_outer()
    for axes in panels[max(0, len(sizes) - across) : len(sizes)]:  # the lowest panel of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("Tokens")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4 if look.wide(figure) else 2)
    return figure, _caption(history, look)


def _grid(look: Look, count: int) -> tuple[Figure, list[Axes], int]:
    wide = look.columns != 1
    across = min(count, (4 if count == 4 else 3) if wide else 2)
    down = math.ceil(count / across)
    figure = look.figure(2, 0.9 + 1.75 * down, 1.0 + 1.5 * down)
    panels = list(figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel())
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels, across


def _panel(axes: Axes, history: pd.DataFrame, look: Look) -> None:
    axes.set_xscale("log")
    for variant in look.order(history["variant"]):
        mark = look.mark(variant)
        for i, (_, run) in enumerate(history[history["variant"] == variant].sort_values("tokens").groupby("run")):
            label = mark.label if i == 0 else None
            axes.plot(run["tokens"], run["loss"], color=tint(mark.colour, 0.65), linewidth=0.4, zorder=2)
            checked = run.dropna(subset=["validation_loss"])
            axes.plot(
                checked["tokens"],
                checked["validation_loss"],
                color=mark.colour,
                marker=mark.marker,
                markersize=2.6,
                linewidth=0.9,
                label=label,
                zorder=3,
            )


def _range(history: pd.DataFrame) -> tuple[float, float]:
    both = pd.concat([history["loss"], history["validation_loss"]]).dropna()
    return float(both.min()) * 0.98, float(both.max()) * 1.02


def _caption(history: pd.DataFrame, look: Look) -> str:
    names = ", ".join(look.label(name) for name in look.order(history["variant"]))
    count = history["run"].nunique()
    return (
        f"Training loss (thin) and validation loss (markers) against tokens for {names}, one panel per size; "
        f"{count} runs of the main token budget, one line per seed. The first {START:.0%} of the tokens is not shown."
    )
