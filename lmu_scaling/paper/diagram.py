"""Boxes and arrows for the diagrams (figures 1 and 2), in inches, so that text fits at every figure width."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from lmu_scaling.paper.style import INK, SUBDUED, tint


def canvas(figure: Figure) -> Axes:
    """Axes that cover the whole figure and whose unit is an inch, origin at the lower left."""
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, figure.get_figwidth())
    axes.set_ylim(0, figure.get_figheight())
    axes.set_axis_off()
    return axes


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, **kwargs: Any) -> None:
    """A rounded box centred on (x, y)."""
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor=kwargs.pop("facecolor", tint(colour, 0.85)),
            edgecolor=colour,
            linewidth=kwargs.pop("linewidth", 0.9),
            **kwargs,
        )
    )


def node(axes: Axes, x: float, y: float, text: str, colour: str, radius: float = 0.15, filled: bool = False) -> None:
    """A round node with a symbol."""
    face = tint(colour, 0.7) if filled else "white"
    axes.add_patch(Circle((x, y), radius, facecolor=face, edgecolor=colour, linewidth=0.9, zorder=3))
    axes.text(x, y, text, ha="center", va="center", zorder=4, size=8)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK, **kwargs: Any) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=kwargs.pop("arrowstyle", "-|>"),
            mutation_scale=kwargs.pop("head", 7),
            color=colour,
            linewidth=kwargs.pop("linewidth", 0.9),
            shrinkA=0,
            shrinkB=0,
            zorder=kwargs.pop("zorder", 2),
            **kwargs,
        )
    )


def skip_connection(axes: Axes, x: float, top: float, bottom: float, edge: float) -> None:
    """A line that leaves at `top`, runs down along `x` and enters again at `bottom`."""
    axes.plot([edge, x, x], [top, top, bottom], color=SUBDUED, linewidth=0.7, zorder=1.5)
    arrow(axes, (x, bottom), (edge, bottom), SUBDUED, linewidth=0.7, head=5)
