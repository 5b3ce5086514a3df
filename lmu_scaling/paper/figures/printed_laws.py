"""Figures 3 and 5 as the paper prints them: its laws over their own range, 55k to 1M, without data of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.reference import load_paper, power_laws, transformer_law
from lmu_scaling.paper.axes import N_LABEL, EndLabel, label_ends, log_axis, loss_axis, set_log_limits
from lmu_scaling.paper.style import Look
from lmu_scaling.runtime import si

INPUTS = ()
POINTS = 60
LMU, BOTH, LSTM, KAPLAN = "lmu", "lmu_attention", "lstm", "transformer"
# Dashes tell the laws apart in grey; the transformer's differ by the steps.
DASHES: dict[str, Any] = {LMU: "-", BOTH: (0, (6, 1.5)), LSTM: (0, (1, 1.2))}
BUDGETS: dict[float, Any] = {1.0: (0, (4, 1.5)), 10.0: (0, (4, 1.5, 1, 1.5)), np.inf: (0, (1, 2.5))}


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    paper = load_paper()
    printed = paper["experiment"]
    n = np.geomspace(printed["n_min"], printed["n_max"], POINTS)
    laws, kaplan = power_laws(paper), transformer_law(paper)
    lines = {name: (law.loss(n), look.label(name), DASHES[name]) for name, law in laws.items()}
    budgets = {
        multiple: (kaplan.loss(n, printed["steps"] * multiple), _budget(multiple, printed["tokens"]), dashes)
        for multiple, dashes in BUDGETS.items()
    }
    look = replace(look, experiment="", corpus="", tokens=None)  # the footer would name an experiment that is not shown
    figure, panels = look.panels(2, 3.0, 5.4, sharey=True)
    first = [(LSTM, *lines[LSTM]), (KAPLAN, *budgets[1.0]), (LMU, *lines[LMU]), (BOTH, *lines[BOTH])]
    second = [*((KAPLAN, *budget) for budget in budgets.values()), (LMU, *lines[LMU]), (BOTH, *lines[BOTH])]
    for axes, chosen, title in ((panels[0], first, "Figure 3"), (panels[1], second, "Figure 5")):
        _panel(axes, n, chosen, look)
        axes.set_title(f"{title}: printed laws", loc="left")
    if look.wide(figure):
        panels[1].label_outer()
    return figure, _caption(n, lines, budgets)


def _panel(axes: Axes, n: Any, lines: list[tuple[str, Any, str, Any]], look: Look) -> None:
    axes.set_xscale("log")
    set_log_limits(axes, n)
    ends = []
    for name, loss, label, dashes in lines:
        colour = look.mark(name).colour
        axes.plot(n, loss, color=colour, linestyle=dashes, linewidth=1.1)
        ends.append(EndLabel(n[-1], float(loss[-1]), label, colour, 6.5))
    loss_axis(axes, "Loss [nats per token]")
    log_axis(axes.xaxis, N_LABEL)
    label_ends(axes, ends)


def _budget(multiple: float, tokens: float) -> str:
    return f"Transformer, {'∞' if np.isinf(multiple) else si(tokens * multiple)} tokens"


def _caption(n: Any, lines: dict[str, Any], budgets: dict[float, Any]) -> str:
    ends = f"N = {si(n[0])} and {si(n[-1])}"
    values = "; ".join(f"{label} {loss[0]:.3f} and {loss[-1]:.3f}" for loss, label, _ in lines.values())
    below = bool((lines[LMU][0] < budgets[np.inf][0]).all())
    return (
        "The laws that the paper prints (section 5), over the range of its own models; nothing here was measured by "
        f"us. Left: its figure 3. Right: its figure 5. Losses at {ends}: {values}. The transformer's law is Kaplan's "
        "(2020, eq. 1.6) at the paper's batch; the LSTM's is for ten times the steps. "
        + (
            "The LMU's law lies below the transformer's for infinitely many tokens at every N, so the printed laws "
            "give no finite factor of tokens, neither ten nor another."
            if below
            else "The LMU's law crosses the transformer's for infinitely many tokens."
        )
    )
