"""Shared by figures 3 and 5: loss against N, one series per variant and token budget, with reference laws."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.paper import load
from lmu_scaling.paper.axes import N_LABEL, EndLabel, errorbars, label_ends, log_axis, loss_axis, set_log_limits
from lmu_scaling.paper.style import SUBDUED, Look, Mark, note, tint
from lmu_scaling.runtime import si

RUN_COLUMNS = "variant size multiple seed n_exact tokens test_loss test_se"
CURVE_COLUMNS = "kind name multiple n loss low high"
REFERENCES = {"paper_lmu": "lmu", "paper_lmu_attention": "lmu_attention", "paper_lstm": "lstm", "kaplan": "transformer"}
REFERENCE_LABELS = {
    "paper_lmu": "paper: LMU",
    "paper_lmu_attention": "paper: LMU + att.",
    "paper_lstm": "paper: LSTM",
    "kaplan": "Kaplan: transformer",
}
FAR = 1.6
DASHES = {1.0: (0, (5, 2)), 10.0: (0, (1, 1.5))}


@dataclass(frozen=True)
class Series:
    """The runs of one variant at one token budget."""

    variant: str
    multiple: float


@dataclass(frozen=True)
class Reference:
    """A law from the literature, drawn as a thin line."""

    name: str
    multiple: float


def printed_references(curves: pd.DataFrame) -> list[Reference]:
    """The printed laws, each at the smallest budget it has: the LSTM's is for ten times the steps (section 5)."""
    own = curves[curves["kind"] == "reference"].groupby("name")["multiple"].min()
    return [Reference(name, float(own[name])) for name in REFERENCES if name in own]


def loss_against_n(
    runs: pd.DataFrame, curves: pd.DataFrame, series: list[Series], references: list[Reference], look: Look
) -> Figure:
    """One panel; two if the printed laws lie so far away that our own runs would be compressed."""
    far = _far(runs, curves, series, references)
    figure, panels = look.panels(2, 3.2, 5.6) if far else _single(look)
    budgets = {entry.multiple for entry in series if entry.variant == "transformer"}
    for axes in panels:
        axes.set_xscale("log")
        set_log_limits(axes, runs["n_exact"])
    ends = [
        [end for entry in series for end in _series(axes, runs, curves, entry, look, len(budgets) > 1)]
        for axes in panels
    ]
    printed = [end for entry in references for end in _reference(panels[-1], curves, entry, references, look)]
    if not any(len(_runs(runs, entry)) for entry in series):
        note(panels[0], "none of the variants of this figure was trained")
    if far:
        panels[0].set_title("This experiment", loc="left")
        panels[1].set_title("Beside the printed laws", loc="left")
    for axes in panels:
        loss_axis(axes)
        log_axis(axes.xaxis, N_LABEL)
    label_ends(panels[0], ends[0] + ([] if far else printed))
    if far:
        label_ends(panels[1], printed)
    return figure


def _single(look: Look) -> tuple[Figure, list[Axes]]:
    figure = look.figure(2, 3.6, 3.4)
    return figure, [figure.subplots()]


def _far(runs: pd.DataFrame, curves: pd.DataFrame, series: list[Series], references: list[Reference]) -> bool:
    """Whether the references would extend the range of losses by more than a factor of `FAR`."""
    own = pd.concat([_runs(runs, entry)["test_loss"] for entry in series])
    n = curves["n"].between(runs["n_exact"].min(), runs["n_exact"].max())
    both = pd.concat([own, *(_curve(curves[n], "reference", r.name, r.multiple)["loss"] for r in references)])
    return len(own) > 0 and (both.max() - both.min()) > FAR * max(own.max() - own.min(), 1e-9)


def _runs(runs: pd.DataFrame, entry: Series) -> pd.DataFrame:
    return runs[(runs["variant"] == entry.variant) & (runs["multiple"] == entry.multiple)]


def _curve(curves: pd.DataFrame, kind: str, name: str, multiple: float) -> pd.DataFrame:
    chosen = (curves["kind"] == kind) & (curves["name"] == name) & (curves["multiple"] == multiple)
    return curves[chosen].dropna(subset=["loss"]).sort_values("n")  # a law that could not be fitted has no losses


def _series(
    axes: Axes, runs: pd.DataFrame, curves: pd.DataFrame, entry: Series, look: Look, name_budget: bool
) -> list[EndLabel]:
    """Draw every run as a marker with its standard error, and the fitted law as a line with its band."""
    own, mark = _runs(runs, entry), _budget_mark(look.mark(entry.variant), entry.multiple)
    if own.empty:
        return []
    y, error = own["test_loss"], own["test_se"].fillna(0)
    errorbars(axes, own["n_exact"], y, y - error, y + error, mark, zorder=3)
    text = mark.label
    if name_budget and entry.variant == "transformer":
        text += f", {si(own['tokens'].iloc[0])} tokens"
    fit = _curve(curves, "fit", entry.variant, entry.multiple)
    if fit.empty:
        n = own["n_exact"].max()
        return [EndLabel(n, float(own.loc[own["n_exact"] == n, "test_loss"].mean()), text, mark.colour)]
    axes.plot(fit["n"], fit["loss"], color=mark.colour, zorder=2.5)
    if entry.multiple == 1:  # the bands of several budgets would hide each other
        axes.fill_between(fit["n"], fit["low"], fit["high"], color=mark.colour, alpha=0.15, linewidth=0, zorder=2)
    return [EndLabel(fit["n"].iloc[-1], fit["loss"].iloc[-1], text, mark.colour)]


def _budget_mark(mark: Mark, multiple: float) -> Mark:
    """Other budgets of a variant have a lighter colour and, for triangles, another orientation."""
    if multiple == 1:
        return mark
    share = min(0.6, 0.22 * multiple**0.45)
    turned = {"^": "v" if multiple < 1 else "<" if multiple < 4 else ">"}
    return Mark(mark.label, tint(mark.colour, share), turned.get(mark.marker, mark.marker))


def _reference(
    axes: Axes, curves: pd.DataFrame, entry: Reference, references: list[Reference], look: Look
) -> list[EndLabel]:
    low, high = axes.get_xlim()
    line = _curve(curves, "reference", entry.name, entry.multiple)
    line = line[(line["n"] >= low) & (line["n"] <= high)]
    if line.empty:
        return []
    several = len({other.multiple for other in references if other.name == entry.name}) > 1
    colour = tint(look.mark(REFERENCES[entry.name]).colour, 0.45)
    dashes = DASHES[entry.multiple if several else 1.0]
    axes.plot(line["n"], line["loss"], color=colour, linestyle=dashes, linewidth=0.8, zorder=1.5)
    text = REFERENCE_LABELS[entry.name] + (f", {entry.multiple:g}×" if several else "")
    return [EndLabel(line["n"].iloc[-1], line["loss"].iloc[-1], text, SUBDUED, 5.8)]


def caption(
    runs: pd.DataFrame, curves: pd.DataFrame, series: list[Series], references: list[Reference], look: Look
) -> str:
    present = [entry for entry in series if len(_runs(runs, entry))]
    absent = [entry for entry in series if entry not in present]
    shown = pd.concat([_runs(runs, entry) for entry in present]) if present else runs.iloc[:0]
    names = ", ".join(dict.fromkeys(look.label(entry.variant) for entry in present)) or "no variant"
    text = f"Test loss against the number of non-embedding parameters N, for {names}. "
    if _far(runs, curves, series, references):
        text += "The first panel shows this experiment alone, the second adds the printed laws. "
    text += f"Each marker is one run ({_seeds(shown)}) with its standard error over test sequences. "
    unfitted = [entry for entry in present if _curve(curves, "fit", entry.variant, entry.multiple).empty]
    if len(unfitted) < len(present):
        further = any(entry.multiple != 1 for entry in present)
        text += "Lines are fitted power laws, bands their intervals"
        text += " (at the main token budget). " if further else ". "
    else:
        text += "There are too few sizes to fit a law. "
    drawn = [entry for entry in references if len(_curve(curves, "reference", entry.name, entry.multiple))]
    if drawn:
        text += (
            "Dashed lines are the laws printed in the paper and in Kaplan et al. (2020). They were measured on another "
            "corpus and tokenizer (OpenWebText2 or WebText2, 50,257 tokens), so slopes can be compared, levels cannot"
            f"{_extrapolated(shown)}. "
        )
    if unfitted and len(unfitted) < len(present):
        text += f"No law could be fitted for {', '.join(_name(entry, look) for entry in unfitted)}. "
    for entry in absent:
        text += f"{look.label(entry.variant)} was not trained in this experiment. "
    return text + load.excluded_note(runs)


def _name(entry: Series, look: Look) -> str:
    return look.label(entry.variant) + ("" if entry.multiple == 1 else f" at {entry.multiple:g}× the tokens")


def _seeds(runs: pd.DataFrame) -> str:
    count = runs["seed"].nunique()
    return "one seed" if count == 1 else f"{count} seeds"


def _extrapolated(runs: pd.DataFrame) -> str:
    smallest = load_paper()["experiment"]["n_min"]
    if runs.empty or runs["n_exact"].min() >= 0.9 * smallest:
        return ""
    return f", and below N = {si(smallest)}, the paper's smallest model, they are extrapolations"
