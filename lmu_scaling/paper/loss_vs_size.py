"""Shared by figures 3 and 5: loss against N, one series per variant and token budget, with reference laws."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.paper import load
from lmu_scaling.paper.axes import N_LABEL, EndLabel, label_ends, log_axis, log_limits, loss_axis, set_log_limits
from lmu_scaling.paper.layers import Layers
from lmu_scaling.paper.style import SUBDUED, Look, Mark, note, tint
from lmu_scaling.runtime import si

RUN_COLUMNS = "run variant size multiple seed n_exact tokens test_loss test_se"
CURVE_COLUMNS = "kind name multiple n loss low high common"
REFERENCES = {"paper_lmu": "lmu", "paper_lmu_attention": "lmu_attention", "paper_lstm": "lstm", "kaplan": "transformer"}
REFERENCE_LABELS = {
    "paper_lmu": "paper: LMU",
    "paper_lmu_attention": "paper: LMU + att.",
    "paper_lstm": "paper: LSTM",
    "kaplan": "Kaplan: transformer",
}
FAR = 1.6
DASHES = {1.0: (5, 2), 10.0: (1, 1.5)}


@dataclass(frozen=True)
class Series:
    """The runs of one variant at one token budget."""

    variant: str
    multiple: float

    @property
    def name(self) -> str:
        return f"{self.variant} {self.multiple:g}"


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
    two = far(runs, curves, series, references)
    figure, panels = look.panels(2, 3.2, 5.6) if two else _single(look)
    points, fits = tidy(runs, curves, series)
    marks = series_marks(points, series, look)
    limits = (runs["n_exact"].min(), runs["n_exact"].max())
    laws = printed(curves, references, log_limits(limits), look)
    for axes in panels:
        ours = Layers("n", "loss", "series", marks).points(points).lines(fits)
        ours.bands(fits[fits["multiple"] == 1])  # the bands of several budgets would hide each other
        ours.on(axes)
        if axes is panels[-1] and len(laws):
            Layers("n", "loss", "label", printed_marks(laws)).lines(laws, zorder=1.5, linewidth=0.8).on(axes)
        axes.set_xscale("log")
        set_log_limits(axes, limits)
        loss_axis(axes)
        log_axis(axes.xaxis, N_LABEL)
    if points.empty:
        note(panels[0], "none of the variants of this figure was trained")
    if two:
        panels[0].set_title("This experiment", loc="left")
        panels[1].set_title("Beside the printed laws", loc="left")
    label_ends(panels[0], _our_ends(points, fits, marks) + ([] if two else _printed_ends(laws)))
    if two:
        label_ends(panels[1], _printed_ends(laws))
    return figure


def _single(look: Look) -> tuple[Figure, list[Axes]]:
    figure = look.figure(2, 3.6, 3.4)
    return figure, [figure.subplots()]


def far(runs: pd.DataFrame, curves: pd.DataFrame, series: list[Series], references: list[Reference]) -> bool:
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


def tidy(runs: pd.DataFrame, curves: pd.DataFrame, series: list[Series]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tidy tables: every run with its standard error, and the points of every fitted law with its interval."""
    points = pd.concat([_runs(runs, entry).assign(series=entry.name) for entry in series])
    error = points["test_se"].fillna(0)
    points = points.assign(n=points["n_exact"], loss=points["test_loss"])
    points = points.assign(low=points["loss"] - error, high=points["loss"] + error)
    fits = [_curve(curves, "fit", entry.variant, entry.multiple).assign(series=entry.name) for entry in series]
    return points, pd.concat(fits)


def series_marks(points: pd.DataFrame, series: list[Series], look: Look) -> dict[str, Mark]:
    """The mark of each series, by name; where the transformer has several budgets, its labels say which."""
    several = points.loc[points["variant"] == "transformer", "multiple"].nunique() > 1
    tokens = points.groupby("series")["tokens"].first()
    marks = {}
    for entry in series:
        mark = _budget_mark(look.mark(entry.variant), entry.multiple)
        if several and entry.variant == "transformer" and entry.name in tokens:
            mark = replace(mark, label=f"{mark.label}, {si(tokens[entry.name])} tokens")
        marks[entry.name] = mark
    return marks


def _our_ends(points: pd.DataFrame, fits: pd.DataFrame, marks: dict[str, Mark]) -> list[EndLabel]:
    """The name of each series where its line ends; beside its largest runs if no law was fitted."""
    ends = []
    for name, mark in marks.items():
        own, fit = points[points["series"] == name], fits[fits["series"] == name]
        if len(own):
            n = own["n_exact"].max()
            loss = fit["loss"].iloc[-1] if len(fit) else own.loc[own["n_exact"] == n, "loss"].mean()
            ends.append(EndLabel(n, float(loss), mark.label, mark.colour))
    return ends


def _budget_mark(mark: Mark, multiple: float) -> Mark:
    """Other budgets of a variant have a lighter colour and, for triangles, another orientation."""
    if multiple == 1:
        return mark
    share = min(0.6, 0.22 * multiple**0.45)
    turned = {"^": "v" if multiple < 1 else "<" if multiple < 4 else ">"}
    return replace(mark, colour=tint(mark.colour, share), marker=turned.get(mark.marker, mark.marker))


def printed(curves: pd.DataFrame, references: list[Reference], limits: tuple[float, float], look: Look) -> pd.DataFrame:
    """Tidy table of the printed laws between these limits, with label, colour and dashes."""
    found = []
    for entry in references:
        line = _curve(curves, "reference", entry.name, entry.multiple)
        several = len({other.multiple for other in references if other.name == entry.name}) > 1
        label = REFERENCE_LABELS[entry.name] + (f", {entry.multiple:g}×" if several else "")
        colour, dashes = look.mark(REFERENCES[entry.name]).colour, entry.multiple if several else 1.0
        found.append(line[line["n"].between(*limits)].assign(label=label, colour=tint(colour, 0.45), dashes=dashes))
    return pd.concat(found) if found else curves.iloc[:0]


def printed_marks(printed: pd.DataFrame) -> dict[str, Mark]:
    looks = printed.drop_duplicates("label")
    return {
        label: Mark(label, colour, "", DASHES[dashes])
        for label, colour, dashes in zip(looks["label"], looks["colour"], looks["dashes"], strict=True)
    }


def _printed_ends(printed: pd.DataFrame) -> list[EndLabel]:
    last = printed.drop_duplicates("label", keep="last") if len(printed) else printed
    return [EndLabel(row["n"], row["loss"], row["label"], SUBDUED, 5.8) for _, row in last.iterrows()]


def caption(
    runs: pd.DataFrame, curves: pd.DataFrame, series: list[Series], references: list[Reference], look: Look
) -> str:
    present = [entry for entry in series if len(_runs(runs, entry))]
    absent = [entry for entry in series if entry not in present]
    shown = pd.concat([_runs(runs, entry) for entry in present]) if present else runs.iloc[:0]
    names = ", ".join(dict.fromkeys(look.label(entry.variant) for entry in present)) or "no variant"
    text = f"Test loss against the number of non-embedding parameters N, for {names}. "
    if far(runs, curves, series, references):
        text += "The first panel shows this experiment alone, the second adds the printed laws. "
    text += f"Each marker is one run ({_seeds(shown)}) with its standard error over test sequences. "
    unfitted = [entry for entry in present if _curve(curves, "fit", entry.variant, entry.multiple).empty]
    if len(unfitted) < len(present):
        further = any(entry.multiple != 1 for entry in present)
        text += "Lines are fitted power laws, bands their intervals"
        text += " (at the main token budget)" if further else ""
        text += _common(curves)
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


def _common(curves: pd.DataFrame) -> str:
    """What the bands leave out, since it is the same for all models (analysis/curves.py)."""
    common = curves.loc[curves["kind"] == "fit", "common"].median()
    if not common > 0:
        return ". "
    return (
        f"; all models read the same test text, and its choice, which shifts all by ±{common:.2f} nats, is left out. "
    )


def _extrapolated(runs: pd.DataFrame) -> str:
    smallest = load_paper()["experiment"]["n_min"]
    if runs.empty or runs["n_exact"].min() >= 0.9 * smallest:
        return ""
    return f", and below N = {si(smallest)}, the paper's smallest model, they are extrapolations"
