"""Figure 4: loss by position in the sequence, LMU + attention (left) and LMU (right) against the transformer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.comparisons import BASELINES, PAPER_BASELINE
from lmu_scaling.analysis.reference import PerTokenLaw, load_paper, per_token_laws
from lmu_scaling.paper import load
from lmu_scaling.paper.axes import loss_axis, powers_of_two
from lmu_scaling.paper.layers import Layers, handles
from lmu_scaling.paper.style import FAINT, SUBDUED, Look, Mark, note

INPUTS = ("analysis/per_token.parquet", "analysis/per_token_fits.csv", "analysis/counts.csv")
PANELS = ("lmu_attention", "lmu")
BASELINE = PAPER_BASELINE
OTHERS = tuple(name for name in BASELINES if name != BASELINE)  # drawn as lines where they were trained
KAPLAN = "kaplan"


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    losses, fits, size = contents(inputs)
    figure = look.figure(2, 2.7, 4.6)
    marks = {name: look.mark(name) for name in (BASELINE, *PANELS)} | {KAPLAN: _kaplan_mark()}
    marks |= {name: replace(look.mark(name), marker="") for name in OTHERS}
    shown, lines = _tidy(losses)
    plot = Layers("position", "mean", "variant", marks, panel="panel")
    plot.bands(shown, alpha=0.2).marked_lines(shown, pointsize=2.8).lines(lines, zorder=1.5, linewidth=0.9)
    panels = plot.panels(figure, list(PANELS), 2 if look.wide(figure) else 1, x=True, y=True)
    for axes, variant in zip(panels, PANELS, strict=True):
        _finish(axes, losses, fits, variant, marks, look)
    return figure, _caption(losses, fits, size, look)


def contents(inputs: dict[str, Path]) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Losses by position and their fits, for the largest size at the main budget, and the name of that size."""
    losses = load.table(inputs["analysis/per_token.parquet"], "variant size multiple split axis position mean low high")
    fits = load.table(
        inputs["analysis/per_token_fits.csv"], "variant size multiple axis plateau plateau_low plateau_high early late"
    )
    counts = load.table(inputs["analysis/counts.csv"], "variant size n_exact context")
    size = load.size_names(counts)[-1]
    losses = losses[
        (losses["size"] == size)
        & (losses["multiple"] == 1)
        & (losses["split"] == "test")
        & (losses["axis"] == "window")
    ]
    fits = fits[(fits["size"] == size) & (fits["multiple"] == 1) & (fits["axis"] == "window")]
    return losses, fits, size


def _tidy(losses: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row per panel, model and position: its variant and the baseline; other transformers and Kaplan's law."""
    by_panel = [losses[losses["variant"].isin((BASELINE, panel))].assign(panel=panel) for panel in PANELS]
    if losses.empty:
        return pd.concat(by_panel), pd.DataFrame(columns=["panel", "variant", "position", "mean"])
    position = np.geomspace(max(losses["position"].min(), 1), losses["position"].max(), 60)
    law = pd.DataFrame({"variant": KAPLAN, "position": position, "mean": _kaplan().loss(position)})
    lines = pd.concat([losses[losses["variant"].isin(OTHERS)], law])
    return pd.concat(by_panel), pd.concat([lines.assign(panel=panel) for panel in PANELS])


def _finish(
    axes: Axes, losses: pd.DataFrame, fits: pd.DataFrame, variant: str, marks: dict[str, Mark], look: Look
) -> None:
    axes.set_xscale("log", base=2)
    axes.set_title(f"{look.label(variant)} and {look.label(BASELINE).lower()}", loc="left", pad=13)
    present = [name for name in (BASELINE, variant) if name in set(losses["variant"])]
    missing = [f"{look.label(name)} was not trained" for name in (BASELINE, variant) if name not in present]
    if missing:
        note(axes, "\n".join(missing))
    if len(losses):
        loss_axis(axes, "Test loss [nats]")
        powers_of_two(axes.xaxis, list(losses["position"]), "Position in the window [tokens]")
        others = [name for name in OTHERS if name in set(losses["variant"])]
        axes.legend(handles=handles({name: marks[name] for name in (*present, *others, KAPLAN)}), loc="upper right")
    _ranges(axes, fits[fits["variant"] == variant], look)


def _kaplan() -> PerTokenLaw:
    """Kaplan's law of the smallest model, the only one at the paper's scale."""
    return per_token_laws(load_paper())[0][1]


def _kaplan_mark() -> Mark:
    law = _kaplan()
    return Mark(f"Kaplan: {law.e:g} + {law.a:g} T$^{{-{law.exponent:g}}}$", SUBDUED, "", (1, 1.5))


def _ranges(axes: Axes, fit: pd.DataFrame, look: Look) -> None:
    """Shade the two ranges of positions whose difference is the plateau statistic."""
    if fit.empty or fit["plateau"].isna().all():
        return
    row = fit.iloc[0]
    for text in (row["early"], row["late"]):
        first, last = (float(part) for part in str(text).replace("-", "–").split("–"))
        axes.axvspan(first, last, color=FAINT, alpha=0.45, linewidth=0, zorder=0.5)
    axes.text(
        0,
        1.02,
        f"loss at {row['early']} − loss at {row['late']}: {row['plateau']:.3f} "
        f"[{row['plateau_low']:.3f}, {row['plateau_high']:.3f}]",
        transform=axes.transAxes,
        size=6,
        va="bottom",
        color=look.mark(row["variant"]).colour,
    )


def _caption(losses: pd.DataFrame, fits: pd.DataFrame, size: str, look: Look) -> str:
    text = (
        f"Loss by position in the window, for the largest size ({size}): {look.label(PANELS[0])} (left) and "
        f"{look.label(PANELS[1])} (right), each beside our own {look.label(BASELINE).lower()}, trained on the same "
        "tokens; thin lines are other transformers. Positions are in logarithmic bins; bands are intervals, grey areas "
        "the positions that are compared. "
        "The dotted line is the law of Kaplan et al. (2020, fig. 20) for their smallest model, about 0.5M parameters, "
        "on another corpus and tokenizer: its shape can be compared, its level cannot. "
    )
    for variant in (*PANELS, BASELINE):
        fit = fits[fits["variant"] == variant]
        if fit.empty:
            if losses[losses["variant"] == variant].empty:
                text += f"{look.label(variant)} was not trained in this experiment. "
            continue
        row = fit.iloc[0]
        if row["plateau"] != row["plateau"]:
            text += f"The context is too short for the plateau of {look.label(variant)}. "
            continue
        text += (
            f"From positions {row['early']} to {row['late']} the loss of {look.label(variant)} falls by "
            f"{row['plateau']:.3f} nats [{row['plateau_low']:.3f}, {row['plateau_high']:.3f}]. "
        )
    return text
