"""Figures 3 and 5 as the paper prints them: its laws over their own range, 55k to 1M, without data of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.reference import load_paper, power_laws, transformer_law
from lmu_scaling.paper.axes import N_LABEL, EndLabel, label_ends, log_axis, loss_axis, set_log_limits
from lmu_scaling.paper.layers import Layers
from lmu_scaling.paper.style import Look, Mark
from lmu_scaling.runtime import si

INPUTS = ()
POINTS = 60
LMU, BOTH, LSTM, KAPLAN = "lmu", "lmu_attention", "lstm", "transformer"
# Dashes tell the laws apart in grey; the transformer's differ by the steps.
DASHES: dict[str, Any] = {LMU: "-", BOTH: (6, 1.5), LSTM: (1, 1.2)}
BUDGETS: dict[float, Any] = {1.0: (4, 1.5), 10.0: (4, 1.5, 1, 1.5), np.inf: (1, 2.5)}
# The laws of each panel.
PANELS = {"Figure 3": (LSTM, 1.0, LMU, BOTH), "Figure 5": (*BUDGETS, LMU, BOTH)}


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    paper = load_paper()
    printed = paper["experiment"]
    n = np.geomspace(printed["n_min"], printed["n_max"], POINTS)
    kaplan = transformer_law(paper)
    losses: dict[Any, Any] = {name: law.loss(n) for name, law in power_laws(paper).items()}
    losses |= {multiple: kaplan.loss(n, printed["steps"] * multiple) for multiple in BUDGETS}
    marks = {str(name): Mark(look.label(name), look.mark(name).colour, "", dashes) for name, dashes in DASHES.items()}
    for multiple, dashes in BUDGETS.items():
        label = _budget(multiple, printed["tokens"])
        marks[str(multiple)] = Mark(label, look.mark(KAPLAN).colour, "", dashes)
    tidy = pd.concat(
        pd.DataFrame({"panel": panel, "law": str(law), "n": n, "loss": losses[law]})
        for panel, laws in PANELS.items()
        for law in laws
    )
    look = replace(look, experiment="", corpus="", tokens=None)  # the footer would name an experiment that is not shown
    figure = look.figure(2, 3.0, 5.4)
    plot = Layers("n", "loss", "law", marks, panel="panel").lines(tidy, linewidth=1.1)
    panels = plot.panels(figure, list(PANELS), 2 if look.wide(figure) else 1, x=True, y=True)
    for axes, panel in zip(panels, PANELS, strict=True):
        _finish(axes, tidy[tidy["panel"] == panel], marks, n)
        axes.set_title(f"{panel}: printed laws", loc="left")
    return figure, _caption(n, losses, marks)


def _finish(axes: Axes, own: pd.DataFrame, marks: dict[str, Mark], n: Any) -> None:
    axes.set_xscale("log")
    set_log_limits(axes, n)
    loss_axis(axes, "Loss [nats per token]")
    log_axis(axes.xaxis, N_LABEL)
    last = own.drop_duplicates("law", keep="last")
    ends = [EndLabel(r["n"], r["loss"], marks[r["law"]].label, marks[r["law"]].colour, 6.5) for _, r in last.iterrows()]
    label_ends(axes, ends)


def _budget(multiple: float, tokens: float) -> str:
    return f"Transformer, {'∞' if np.isinf(multiple) else si(tokens * multiple)} tokens"


def _caption(n: Any, losses: dict[Any, Any], marks: dict[str, Mark]) -> str:
    ends = f"N = {si(n[0])} and {si(n[-1])}"
    values = "; ".join(f"{marks[name].label} {losses[name][0]:.3f} and {losses[name][-1]:.3f}" for name in DASHES)
    below = bool((losses[LMU] < losses[np.inf]).all())
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
