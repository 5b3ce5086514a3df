"""Layers of seaborn plots in the style of all figures: points with intervals, lines with bands, from tidy tables.

A table has one row per point, and a column that names the series; `marks` gives each series its colour and marker.
The figure makes axes logarithmic and sets limits, ticks and labels once the plot is drawn: seaborn 0.13 scales the
bounds of an interval correctly on a linear axis only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import pandas as pd
import seaborn.objects as so
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmu_scaling.paper.style import Mark


class Layers:
    """A plot of column `y` against column `x`, with one colour, marker and dash pattern per value of column `by`."""

    def __init__(self, x: str, y: str, by: str, marks: Mapping[str, Mark], panel: str | None = None) -> None:
        self.columns = {"x": x, "y": y, "color": by, "marker": by, "linestyle": by} | ({"col": panel} if panel else {})
        self.plot = so.Plot().theme({key: matplotlib.rcParams[key] for key in so.Plot.config.theme})
        self.plot = self.plot.scale(
            color={name: mark.colour for name, mark in marks.items()},
            marker={name: mark.marker for name, mark in marks.items()},
            linestyle={name: mark.dashes for name, mark in marks.items()},
        )

    def _add(self, data: pd.DataFrame, mark: Any, *moves: Any, without: tuple[str, ...] = (), **more: Any) -> Layers:
        columns = {name: column for name, column in self.columns.items() if name not in without}
        rows = data.reset_index(drop=True)  # seaborn needs a unique index
        if len(rows):
            self.plot = self.plot.add(mark, *moves, data=rows, legend=False, **columns, **more)
        return self

    def points(self, data: pd.DataFrame, unit: str = "run", pointsize: float = 4.2) -> Layers:
        """Every row as a marker with its interval from `low` to `high`; a white rim keeps overlapping markers apart."""
        bars = so.Range(linewidth=0.8, linestyle="-", artist_kws={"zorder": 2.9})
        self._add(data, bars, without=("marker", "linestyle"), ymin="low", ymax="high", group=unit)
        dots = so.Dot(pointsize=pointsize, edgecolor="white", edgewidth=0.5, artist_kws={"zorder": 3})
        return self._add(data, dots, without=("linestyle",))

    def lines(self, data: pd.DataFrame, *, zorder: float = 2.5, group: str | None = None, **look: Any) -> Layers:
        """A line per series, or per value of `group`, without markers."""
        line = so.Line(marker="", artist_kws={"zorder": zorder}, **look)
        return self._add(data, line, without=("marker",), group=group)

    def means(self, data: pd.DataFrame, *, group: str, **look: Any) -> Layers:
        """A thin line through the mean of the rows at each x."""
        line = so.Line(marker="", artist_kws={"zorder": 2}, **look)
        return self._add(data, line, so.Agg("mean"), without=("marker",), group=group)

    def marked_lines(self, data: pd.DataFrame, *, group: str | None = None, **look: Any) -> Layers:
        """A line per series with a marker at every row."""
        return self._add(data, so.Line(artist_kws={"zorder": 3}, **look), group=group)

    def bands(self, data: pd.DataFrame, alpha: float = 0.15) -> Layers:
        """The interval from `low` to `high` around the line of each series."""
        band = so.Band(alpha=alpha, artist_kws={"zorder": 2})
        return self._add(data, band, without=("marker", "linestyle"), ymin="low", ymax="high")

    def on(self, axes: Axes) -> None:
        self.plot.label(x="", y="").on(axes).plot()

    def panels(self, figure: Figure, order: list[str], across: int, **share: bool) -> list[Axes]:
        """One panel per value of the column `panel`, in this order, `across` in a row; `share` as in seaborn."""
        grid = self.plot.facet(col=[], order=order, wrap=across if across < len(order) else None).share(**share)
        grid.label(title=lambda _: "", x="", y="").on(figure).plot()
        return list(figure.axes)


def handles(marks: Mapping[str, Mark], line: bool = True) -> list[Line2D]:
    """Entries of a legend."""
    return [
        Line2D([], [], linestyle=_dashes(mark) if line else "", marker=mark.marker, color=mark.colour, label=mark.label)
        for mark in marks.values()
    ]


def _dashes(mark: Mark) -> Any:
    return mark.dashes if isinstance(mark.dashes, str) else (0, mark.dashes)


def legend(figure: Figure, marks: Mapping[str, Mark], across: int, line: bool = True) -> None:
    """One legend above all panels, `across` entries in a row."""
    if marks:
        figure.legend(handles=handles(marks, line), loc="outside upper center", ncols=min(across, len(marks)))
