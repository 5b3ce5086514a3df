"""Token multiplier against N: how many times more tokens a transformer needs for the LMU's loss (the paper's "10x")."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.multipliers import at_main_budget
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.paper import load
from lmu_scaling.paper.axes import N_LABEL, log_axis, set_log_limits
from lmu_scaling.paper.layers import legend
from lmu_scaling.paper.style import SUBDUED, Look, Mark, note

INPUTS = ("analysis/multipliers.csv",)
OURS = {"lmu": "lmu", "lmu_attention": "lmu_attention"}
PRINTED = {"paper_lmu": "lmu", "paper_lmu_attention": "lmu_attention"}
PANELS = (
    ("transformer", OURS, "Against our GPT-2-style transformer"),
    ("transformer_modern", OURS, "Against our modern transformer"),
    ("kaplan", PRINTED, "The paper's laws against Kaplan's"),
)
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    table = load.table(
        inputs["analysis/multipliers.csv"], "quantity variant against size n value low high infinite_share beyond"
    )
    tokens = at_main_budget(table[table["quantity"] == "tokens"])
    claimed = load_paper()["data_efficiency"]["token_multiplier"]
    found = {a: tokens[(tokens["against"] == a) & tokens["variant"].isin(list(names))] for a, names, _ in PANELS}
    shown = [panel for panel in PANELS if panel[0] != "transformer_modern" or len(found[panel[0]])]
    chosen = [found[against] for against, _, _ in shown]
    figure, panels = look.panels(len(shown), 2.8, 2.45 * len(shown), sharey=True)
    ceiling = _ceiling(pd.concat(chosen))
    _value_axis(panels[0], chosen, ceiling, claimed)
    for axes, own, (_, names, title) in zip(panels, chosen, shown, strict=True):
        axes.set_title(title, loc="left")
        _panel(axes, own, names, ceiling, claimed, look)
    if look.wide(figure):
        for axes in panels[1:]:
            axes.label_outer()
    else:
        for axes in panels[1:]:
            axes.set_ylabel("Token multiplier")
    legend(figure, {variant: look.mark(variant) for variant in OURS}, 2, line=False)
    return figure, _caption(found, claimed, look)


def _ceiling(tokens: pd.DataFrame) -> float:
    """Where infinity is drawn: above every finite bound."""
    finite = [v for column in ("value", "low", "high") for v in tokens[column] if math.isfinite(v)]
    return max([40.0, *(2.2 * v for v in finite)])


def _panel(axes: Axes, table: pd.DataFrame, names: dict[str, str], ceiling: float, claimed: int, look: Look) -> None:
    axes.set_xscale("log")
    axes.axhline(claimed, color=SUBDUED, linestyle=(0, (5, 2)), linewidth=0.8)
    axes.axhline(1, color=SUBDUED, linewidth=0.6)
    axes.set_xlabel(N_LABEL)
    if table.empty:
        note(axes, "no multiplier: it needs an LMU and\ntransformers at several token budgets", 0.3)
        axes.set_xticks([])
        return
    for variant in names:
        own, mark = table[table["variant"] == variant].sort_values("n"), look.mark(names[variant])
        shift = 0.97 if names[variant] == "lmu" else 1.03
        for _, row in own.iterrows():
            _interval(axes, row, row["n"] * shift, ceiling, mark)
    set_log_limits(axes, table["n"])
    log_axis(axes.xaxis, N_LABEL)


def _value_axis(axes: Axes, chosen: list[pd.DataFrame], ceiling: float, claimed: int) -> None:
    shown = [v / 1.3 for own in chosen for v in own["value"] if math.isfinite(v)]
    low = min([0.7, *shown]) / (2 if any(own.get("below", pd.Series(dtype=bool)).any() for own in chosen) else 1)
    axes.set_yscale("log")
    axes.set_ylim(low, ceiling * 1.5)
    ticks = [tick for tick in TICKS if low <= tick < ceiling * 0.6]
    axes.set_yticks([*ticks, ceiling], [*(f"{tick:g}×" for tick in ticks), "∞"])
    axes.minorticks_off()
    axes.set_ylabel("Token multiplier")
    axes.annotate(
        f"the paper: {claimed}×",
        (1, claimed),
        xycoords=axes.get_yaxis_transform(),
        xytext=(-2, 1.5),
        textcoords="offset points",
        size=6,
        color=SUBDUED,
        ha="right",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
        zorder=4,
    )


def _interval(axes: Axes, row: pd.Series, n: float, ceiling: float, mark: Mark) -> None:
    """Draw an estimate as a filled marker, a bound as a hollow one with an arrow in the open direction."""
    value, low, high = (min(row[key], ceiling) for key in ("value", "low", "high"))
    low = max(low, axes.get_ylim()[0])
    bound = bool(row["beyond"]) or bool(row.get("below", False))
    if row["beyond"]:
        _arrow(axes, n, low, value * 2.2, mark)
    elif row.get("below", False):
        _arrow(axes, n, high, value / 2.2, mark)
    elif math.isinf(row["high"]) and not math.isinf(row["low"]):
        _arrow(axes, n, low, ceiling, mark)
    else:
        axes.plot([n, n], [low, high], color=mark.colour, linewidth=0.9)
    face = "white" if bound else mark.colour
    axes.plot([n], [value], mark.marker, color=mark.colour, markerfacecolor=face, zorder=3)


def _arrow(axes: Axes, n: float, start: float, end: float, mark: Mark) -> None:
    style = {"arrowstyle": "-|>", "color": mark.colour, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (n, end), (n, start), arrowprops=style)


def _caption(found: dict[str, pd.DataFrame], claimed: int, look: Look) -> str:
    text = (
        "How many times more tokens a transformer of equal N needs to reach the same loss, with intervals: our LMUs "
        "against our own transformers, and the paper's printed laws against Kaplan's law. A hollow marker is a bound, "
        "the largest or smallest budget that was trained, and its arrow points to where the value lies. Intervals of "
        "the printed laws come from the rounding of their constants; on the line ∞ no number of tokens is enough. The "
        f"dashed line is the paper's claim, {claimed}×. "
    )
    printed = found["kaplan"]
    for baseline, ours in list(found.items())[:2]:
        for variant in look.order(ours["variant"]):
            row = ours[ours["variant"] == variant].sort_values("n").iloc[-1]
            text += f"{look.label(variant)} at N = {row['n']:,.0f}: {_multiplier_text(row)} against our "
            text += f"{look.label(baseline)[:1].lower()}{look.label(baseline)[1:]}. "
    if found["transformer"].empty:
        text += "No multiplier against our own transformer: it was not trained at several token budgets. "
    lmu = printed[printed["variant"] == "paper_lmu"]
    if len(lmu):
        text += (
            f"By the printed laws the multiplier of the LMU is infinite at {int(lmu['value'].eq(math.inf).sum())} of "
            f"{len(lmu)} sizes."
        )
    return text


def _multiplier_text(row: pd.Series) -> str:
    if math.isinf(row["value"]):
        return "∞"
    sign = "> " if row["beyond"] else "< " if row.get("below", False) else ""
    return f"{sign}{row['value']:.1f}×"
