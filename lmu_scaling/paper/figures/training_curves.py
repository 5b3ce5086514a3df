"""Training and validation loss against tokens, one panel per size."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmu_scaling.paper import load
from lmu_scaling.paper.axes import log_axis, loss_axis
from lmu_scaling.paper.layers import Layers, legend
from lmu_scaling.paper.style import Look

INPUTS = ("analysis/history.parquet", "analysis/counts.csv")
START = 0.01  # share of the tokens that is not drawn: all models are alike there


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    history, counts = contents(inputs["analysis/history.parquet"], inputs["analysis/counts.csv"])
    sizes = [size for size in load.size_names(counts) if size in set(history["size"])]
    figure, across = _figure(look, len(sizes))
    marks = {variant: look.mark(variant) for variant in look.order(history["variant"])}
    checked = history.dropna(subset=["validation_loss"]).assign(loss=lambda frame: frame["validation_loss"])
    plot = Layers("tokens", "loss", "variant", marks, panel="size")
    plot.lines(history, group="run", linewidth=0.4, alpha=0.3, zorder=2)
    plot.marked_lines(checked, group="run", pointsize=2.8, linewidth=0.9)
    for axes, size in zip(plot.panels(figure, sizes, across, x=True, y=True), sizes, strict=True):
        axes.set_title(f"{size} (d = {counts.loc[counts['size'] == size, 'd'].iloc[0]})", loc="left")
        axes.set_xscale("log")
        axes.set_ylim(*loss_range(history))
        loss_axis(axes, "Loss [nats]")
        log_axis(axes.xaxis, "Tokens")
    legend(figure, marks, 5 if look.wide(figure) else 2)
    return figure, _caption(history, look)


def contents(history: Path, counts: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The curves of the main setting and budget, without their start, and the sizes."""
    columns = "run variant size multiple seed tokens loss validation_loss"
    rows = load.main_setting(load.table(history, columns))
    shown = (rows["multiple"] == 1) & (rows["tokens"] >= START * rows["tokens"].max())
    return rows[shown], load.table(counts, "size d n_exact")


def _figure(look: Look, count: int) -> tuple[Figure, int]:
    wide = look.columns != 1
    across = min(count, (4 if count == 4 else 3) if wide else 2)
    down = math.ceil(count / across)
    return look.figure(2, 0.9 + 1.75 * down, 1.0 + 1.5 * down), across


def loss_range(history: pd.DataFrame) -> tuple[float, float]:
    both = pd.concat([history["loss"], history["validation_loss"]]).dropna()
    return float(both.min()) * 0.98, float(both.max()) * 1.02


def _caption(history: pd.DataFrame, look: Look) -> str:
    names = ", ".join(look.label(name) for name in look.order(history["variant"]))
    count = history["run"].nunique()
    return (
        f"Training loss (thin) and validation loss (markers) against tokens for {names}, one panel per size; "
        f"{count} runs of the main token budget, one line per seed. The first {START:.0%} of the tokens is not shown."
    )
