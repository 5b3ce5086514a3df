"""Building blocks of interactive charts, as plotly.js reads them: plain dictionaries from tidy tables.

Everything of one series shares a legend group, so that one click on the legend hides its points, line and band.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pandas as pd
from matplotlib.colors import to_rgb

from lmu_scaling.paper.axes import log_limits, log_ticks
from lmu_scaling.paper.style import FAINT, INK, Mark
from lmu_scaling.paper.tabulate import Table
from lmu_scaling.runtime import si

SYMBOLS = {
    **{"o": "circle", "s": "square", "D": "diamond", "d": "diamond-tall", "p": "pentagon", "h": "hexagon"},
    **{"^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right"},
    **{"P": "cross", "X": "x", "*": "star", "+": "cross", "x": "x"},
}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
Trace = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """Traces and layout for plotly.js, what changes on a narrow screen, and the same numbers as a table."""

    traces: list[Trace]
    layout: dict[str, Any]
    table: Table
    narrow: dict[str, Any] = field(default_factory=dict)


def numbers(values: Iterable[float]) -> list[float | None]:
    """Six significant digits, so that equal results give equal bytes; JSON has no NaN and no infinity."""
    return [None if not abs(v) < float("inf") else float(f"{v:.6g}") for v in map(float, values)]


def text(words: object) -> str:
    """Text from data: plotly.js would read markup in it."""
    return escape(str(words), quote=False)


def points(x: pd.Series, y: pd.Series, error: pd.Series | None, hover: Sequence[str], mark: Mark, name: str) -> Trace:
    """A marker per run, with its error bar and what is shown beside the pointer; the series' entry of the legend."""
    trace: Trace = {"type": "scatter", "mode": "markers", "x": numbers(x), "y": numbers(y), "name": text(mark.label)}
    trace |= {"legendgroup": name, "marker": marker(mark), "hovertext": list(hover), "hoverinfo": "text"}
    if error is not None:
        trace["error_y"] = {"array": numbers(error.fillna(0)), "color": mark.colour, "thickness": 1.2, "width": 2}
    return trace


def marker(mark: Mark, size: float = 9) -> dict[str, Any]:
    symbol = SYMBOLS.get(mark.marker, "circle")
    return {"symbol": symbol, "color": mark.colour, "size": size, "line": {"color": "white", "width": 0.8}}


def line(x: pd.Series, y: pd.Series, mark: Mark, name: str, hover: Sequence[str] | None = None, **look: Any) -> Trace:
    """A line that belongs to the series `name` and has no entry of its own in the legend."""
    trace: Trace = {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "legendgroup": name}
    trace |= {"showlegend": False, "line": {"color": mark.colour, "width": 2} | look}
    return trace | ({"hovertext": list(hover), "hoverinfo": "text"} if hover else {"hoverinfo": "skip"})


def band(x: pd.Series, low: pd.Series, high: pd.Series, mark: Mark, name: str) -> Trace:
    """The area between two lines."""
    red, green, blue = (round(255 * channel) for channel in to_rgb(mark.colour))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers([*x, *x[::-1]]),
        "y": numbers([*high, *low[::-1]]),
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.12)",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": name,
        "showlegend": False,
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    look = {"gridcolor": "#ececec", "linecolor": INK, "ticks": "outside", "tickcolor": INK, "zeroline": False}
    return look | {"title": {"text": title, "standoff": 8}, "automargin": True} | more


def log_axis(
    title: str, values: Iterable[float] = (), unit: Callable[[float], str] = si, most: int = 8, **more: Any
) -> dict[str, Any]:
    """A logarithmic axis; with `values`, it has at most so many round ticks until somebody zooms (charts.js)."""
    shown = list(values)
    if shown:
        ticks = log_ticks(*log_limits(shown), lambda ticks: len(ticks) > most)
        more |= {"tickmode": "array", "tickvals": numbers(ticks), "ticktext": [unit(tick) for tick in ticks]}
    return axis(title, type="log", tickangle=0, **more)


def layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The look that all charts share; the legend is above, in rows."""
    return {
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 60, "r": 15, "t": 10, "b": 50},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "white", "bordercolor": FAINT, "font": {"color": INK, "size": 13}, "align": "left"},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
        },
        "xaxis": x,
        "yaxis": y,
    } | more
