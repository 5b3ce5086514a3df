"""Figure 1: the memory state m₄ computed step by step (equation 1) and in parallel as a convolution (equation 4)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.paper import diagram, load
from lmu_scaling.paper.style import SUBDUED, Look

INPUTS = ("analysis/counts.csv",)
STEPS = 4
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.3  # inches
LEFT = 0.5
PITCH = 0.8


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    counts = load.table(inputs["analysis/counts.csv"], "variant n_exact q theta context d")
    figure = look.figure(2, PANEL_HEIGHT + 0.2, 2 * PANEL_HEIGHT + 0.2)
    axes = diagram.canvas(figure)
    wide = look.wide(figure)
    _sequential(axes, 0.1 if wide else 0.0, 0.25 if wide else 0.25 + PANEL_HEIGHT, look)
    _parallel(axes, 3.55 if wide else 0.0, 0.25, look)
    return figure, _caption(counts)


def _sequential(axes: Axes, x0: float, y0: float, look: Look) -> None:
    colour = look.mark("lmu").colour
    _title(axes, x0, y0, "Sequential", "one step after the other, $O(1)$ memory")
    axes.text(x0 + 0.07, y0 + 1.0, "$0$", size=8, va="center")
    diagram.arrow(axes, (x0 + 0.17, y0 + 1.0), (x0 + LEFT - 0.2, y0 + 1.0))
    for t in range(1, STEPS + 1):
        x = x0 + LEFT + (t - 1) * PITCH
        diagram.node(axes, x, y0 + 0.25, f"$x_{t}$", SUBDUED)
        diagram.arrow(axes, (x, y0 + 0.40), (x, y0 + 0.82))
        axes.text(x + 0.05, y0 + 0.58, r"$\bar{B}$", size=7.5, color=colour)
        diagram.box(axes, x, y0 + 1.0, 0.36, 0.36, colour)
        axes.text(x, y0 + 1.0, "+", ha="center", va="center", size=10)
        diagram.arrow(axes, (x, y0 + 1.18), (x, y0 + 1.42))
        diagram.node(axes, x, y0 + 1.57, rf"$m_{t}$", colour, filled=t == STEPS)
        if t < STEPS:
            diagram.arrow(axes, (x + 0.18, y0 + 1.0), (x + PITCH - 0.18, y0 + 1.0))
            axes.text(x + PITCH / 2 - 0.02, y0 + 1.06, r"$\bar{A}$", size=7.5, color=colour, ha="center")


def _parallel(axes: Axes, x0: float, y0: float, look: Look) -> None:
    colour = look.mark("lmu").colour
    _title(axes, x0, y0, "Parallel", "all products at once, then one sum")
    middle = x0 + LEFT + 1.5 * PITCH
    for t in range(1, STEPS + 1):
        x, power = x0 + LEFT + (t - 1) * PITCH, STEPS - t
        diagram.node(axes, x, y0 + 0.25, f"$x_{t}$", SUBDUED)
        diagram.arrow(axes, (x, y0 + 0.40), (x, y0 + 0.64))
        diagram.box(axes, x, y0 + 0.79, 0.62, 0.30, colour)
        factor = {0: "", 1: r"\bar{A}"}.get(power, rf"\bar{{A}}^{power}")
        axes.text(x, y0 + 0.785, rf"${factor}\bar{{B}}\,x_{t}$", ha="center", va="center", size=7.5)
        diagram.arrow(axes, (x, y0 + 0.94), (middle + 0.4 * (x - middle) * 0.3, y0 + 1.19))
    diagram.box(axes, middle, y0 + 1.27, 0.62, 0.17, colour)
    axes.text(middle, y0 + 1.265, r"$\Sigma$", ha="center", va="center", size=8)
    diagram.arrow(axes, (middle, y0 + 1.355), (middle, y0 + 1.55))
    diagram.node(axes, middle, y0 + 1.70, f"$m_{STEPS}$", colour, filled=True)


def _title(axes: Axes, x0: float, y0: float, title: str, words: str) -> None:
    axes.text(x0 + 0.1, y0 + 2.02, title, size=8.5, weight="bold", va="center")
    axes.text(x0 + 0.1 + 0.085 * len(title) + 0.1, y0 + 2.02, words, size=7, va="center", color=SUBDUED)


def _caption(counts: pd.DataFrame) -> str:
    text = (
        "The memory state m₄ computed in two ways. Left: equation 1, the linear recurrence m_t = Ā m_{t−1} + B̄ x_t, "
        "step by step. Right: equation 4, the same state as a sum of independent products Ā^{t−j} B̄ x_j, which is a "
        "convolution with the impulse response. "
    )
    own = counts.dropna(subset=["q"])
    if own.empty:
        return text + "This experiment trains no model with an LMU."
    row = own.sort_values("n_exact").iloc[-1]
    return text + (
        f"In our largest model m_t has q = {row['q']:.0f} elements for each of d = {row['d']:.0f} channels, a window "
        f"of θ = {row['theta']:g} tokens, and sequences of n = {row['context']:.0f} tokens."
    )
