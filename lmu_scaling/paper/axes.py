"""Axes of scaling plots: readable logarithmic ticks, labels at line ends and in free spots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from lmu_scaling.runtime import si

N_LABEL = "Non-embedding parameters N"
LOSS_LABEL = "Test loss [nats per token]"


class EndLabel(NamedTuple):
    """A label for the right end of a line."""

    x: float
    y: float
    text: str
    colour: str
    size: float = 7.0


def loss_axis(axes: Axes, label: str = LOSS_LABEL) -> None:
    """Logarithmic y axis with the ticks of a linear one, as losses span less than a decade."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for tick in MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high) if low <= tick <= high]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    digits = next(k for k in range(1, 6) if all(abs(round(tick, k) - tick) < 1e-9 for tick in ticks) or k == 5)
    axes.yaxis.set_major_formatter(FixedFormatter([f"{tick:.{digits}f}" for tick in ticks]))
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.set_ylabel(label)


def log_axis(axis: Axis, label: str, unit: Any = si) -> None:
    """Ticks and labels of a logarithmic axis."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(
        FixedLocator(log_ticks(low, high, lambda ticks: _crowded(axis, ticks, math.log(high / low))))
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
    axis.set_minor_locator(LogLocator(10, subs=range(1, 10), numticks=200))
    axis.set_minor_formatter(NullFormatter())
    axis.set_label_text(label)


def log_ticks(low: float, high: float, crowded: Callable[[list[float]], bool] = lambda _: False) -> list[float]:
    """Round numbers between these bounds: the first of four sets that has three, unless they would be crowded."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for leads in ((1,), (1, 2, 5), (1, 3), (1, 1.5, 2, 3, 5, 7)):
        more = [lead * 10.0**power for power in decades for lead in leads if low <= lead * 10.0**power <= high]
        if ticks and (len(more) <= len(ticks) or crowded(more)):
            continue
        ticks = more
        if len(ticks) >= 3:
            break
    return ticks


def _crowded(axis: Axis, ticks: list[float], length: float) -> bool:
    """Estimate whether labels of about 0.36 in would touch; the layout is not final yet."""
    box = axis.axes.get_position()
    figure: Any = axis.axes.figure
    inches = box.width * figure.get_figwidth() if axis is axis.axes.xaxis else box.height * figure.get_figheight() * 2
    steps = [math.log(b / a) / length * inches for a, b in itertools.pairwise(sorted(ticks))]
    return bool(steps) and min(steps) < 0.36


def log_limits(values: Any, least: float = 3.0) -> tuple[float, float]:
    """Limits of a logarithmic axis: a small margin, and at least a factor `least`, so that one size has ticks."""
    low, high = float(min(values)), float(max(values))
    room = max((high / low) ** 0.04, math.sqrt(least * low / high))
    return low / room, high * room


def set_log_limits(axes: Axes, values: Any, least: float = 3.0) -> None:
    axes.set_xlim(*log_limits(values, least))


def powers_of_two(axis: Axis, values: Sequence[float], label: str) -> None:
    """Ticks at powers of two, for sequence lengths and positions."""
    exponents = range(math.floor(math.log2(min(values))), math.ceil(math.log2(max(values))) + 1)
    step = 2 if len(exponents) > 8 else 1
    ticks = [2**e for e in list(exponents)[::step]]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([str(tick) for tick in ticks]))
    axis.set_minor_locator(FixedLocator([]))
    axis.set_label_text(label)


def label_ends(axes: Axes, ends: Sequence[EndLabel], gap: float = 7.5, dx: float = 4) -> None:
    """Write labels beside line ends, at the right edge, shifted vertically where they would overlap.

    `gap` and `dx` are in points.
    """
    if not ends:
        return
    figure: Any = axes.figure
    figure.draw_without_rendering()
    points = 72 / figure.dpi
    heights = [axes.transData.transform((end.x, end.y))[1] * points for end in ends]
    placed = _separate(heights, gap)
    right = axes.get_xlim()[1]
    for end, natural, height in zip(ends, heights, placed, strict=True):
        axes.annotate(
            end.text,
            (right, end.y),
            xytext=(dx, round(height - natural, 2)),
            textcoords="offset points",
            color=end.colour,
            size=end.size,
            va="center",
            ha="left",
            annotation_clip=False,
        )


def _separate(heights: Sequence[float], gap: float) -> list[float]:
    """Smallest shifts that keep neighbours `gap` apart: overlapping labels form blocks around their mean."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    blocks: list[tuple[float, list[int]]] = []
    for index in order:
        blocks.append((heights[index], [index]))
        while len(blocks) > 1 and _extent(blocks[-1], gap)[0] - _extent(blocks[-2], gap)[1] < gap:
            members = blocks[-2][1] + blocks[-1][1]
            blocks[-2:] = [(sum(heights[i] for i in members) / len(members), members)]
    placed = list(heights)
    for centre, members in blocks:
        for rank, index in enumerate(members):
            placed[index] = centre + (rank - (len(members) - 1) / 2) * gap
    return placed


def _extent(block: tuple[float, list[int]], gap: float) -> tuple[float, float]:
    half = (len(block[1]) - 1) / 2 * gap
    return block[0] - half, block[0] + half


def label_free_spot(axes: Axes, spots: Sequence[tuple[float, float]], text: str, colour: str, size: float = 6) -> None:
    """Write a text beside one of these points, on the side where it covers least of what is already drawn."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    markers = [axes.transData.transform(np.asarray(dots.get_offsets(), float)) for dots in axes.findobj(PathCollection)]
    drawn = np.concatenate([*(_path(axes, line) for line in axes.lines), *markers])
    taken = [other.get_window_extent() for other in axes.texts]
    tried: list[tuple[bool, int, int, Any]] = []
    for spot, (dx, dy) in itertools.product(spots, ((4, 4), (4, -4), (-4, -4), (-4, 4))):
        sides: dict[str, Any] = {"ha": "left" if dx > 0 else "right", "va": "bottom" if dy > 0 else "top"}
        note = axes.annotate(text, spot, (dx, dy), textcoords="offset points", size=size, color=colour, **sides)
        box = note.get_window_extent()
        inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
        room = box.padded(2.5 * figure.dpi / 72)  # markers are not points
        covered = int(((drawn > room.min) & (drawn < room.max)).all(axis=1).sum())
        tried.append((not inside or any(room.overlaps(other) for other in taken), covered, len(tried), note))
    for *_, note in sorted(tried)[1:]:
        note.remove()


def _path(axes: Axes, line: Line2D) -> NDArray[np.float64]:
    """Closely spaced points on a line [pixels]; only the markers if no line joins them."""
    xy = axes.transData.transform(np.asarray(line.get_xydata(), float))
    if line.get_linestyle() in ("None", "") or len(xy) < 2:
        return xy
    steps = np.linspace(0, len(xy) - 1, 40 * len(xy))
    return np.stack([np.interp(steps, range(len(xy)), column) for column in xy.T], axis=1)
