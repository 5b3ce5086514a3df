"""Loss against size and against compute: every run is a point, its series a line with a band."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from lmu_scaling.paper import load, loss_vs_size
from lmu_scaling.paper.axes import LOSS_LABEL, N_LABEL
from lmu_scaling.paper.charts import traces
from lmu_scaling.paper.charts.traces import Chart, Trace
from lmu_scaling.paper.figures import loss_vs_N_10x
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Table, number
from lmu_scaling.runtime import si

RUNS, CURVES = "analysis/runs.csv", "analysis/curves.csv"


def against_size(results: Path, look: Look) -> Chart:
    runs, curves = _load(results)
    series = [loss_vs_size.Series(name, 1.0) for name in look.order(runs["variant"])]
    return _by_size(runs, curves, series, loss_vs_size.printed_references(curves), look)


def against_size_and_budget(results: Path, look: Look) -> Chart:
    runs, curves = _load(results)
    return _by_size(runs, curves, *loss_vs_N_10x.contents(runs), look)


def _load(results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    runs = load.runs(results / RUNS, loss_vs_size.RUN_COLUMNS)
    return runs, load.table(results / CURVES, loss_vs_size.CURVE_COLUMNS)


def _by_size(
    runs: pd.DataFrame,
    curves: pd.DataFrame,
    series: list[loss_vs_size.Series],
    references: list[loss_vs_size.Reference],
    look: Look,
) -> Chart:
    points, fits = loss_vs_size.tidy(runs, curves, series)
    marks = loss_vs_size.series_marks(points, series, look)
    drawn: list[Trace] = []
    for name, mark in marks.items():
        own, fit = points[points["series"] == name], fits[fits["series"] == name]
        if own.empty:
            continue
        if len(fit):
            if fit["multiple"].iloc[0] == 1:  # the bands of several budgets would hide each other
                drawn.append(traces.band(fit["n"], fit["low"], fit["high"], mark, name))
            drawn.append(traces.line(fit["n"], fit["loss"], mark, name, _law_hover(fit, mark.label)))
        drawn.append(traces.points(own["n"], own["loss"], own["test_se"], _run_hover(own, look), mark, name))
    printed = loss_vs_size.printed(curves, references, (runs["n_exact"].min(), runs["n_exact"].max()), look)
    far = loss_vs_size.far(runs, curves, series, references)
    for label, mark in loss_vs_size.printed_marks(printed).items():
        own = printed[printed["label"] == label]
        ends = zip(own["n"], own["loss"], strict=True)
        hover = [f"<b>{traces.text(label)}</b><br>N = {n:,.0f}<br>loss {loss:.3f}" for n, loss in ends]
        shown = traces.line(own["n"], own["loss"], mark, label, hover, dash="dash", width=1.3)
        # far away, they would compress our own runs until somebody asks for them
        drawn.append(shown | {"name": label, "showlegend": True, "visible": "legendonly" if far else True})
    layout = traces.layout(traces.log_axis(N_LABEL, runs["n_exact"], tickformat="~s"), traces.log_axis(LOSS_LABEL))
    entries = sum(trace.get("showlegend", True) for trace in drawn)
    return Chart(drawn, layout, run_table(points, look), {"height": 340 + 26 * math.ceil(entries / 2)})


def against_compute(results: Path, look: Look) -> Chart:
    runs = load.runs(results / RUNS, f"{loss_vs_size.RUN_COLUMNS} flops")
    runs = runs.assign(n=runs["n_exact"], loss=runs["test_loss"])
    drawn: list[Trace] = []
    for variant in look.order(runs["variant"]):
        own, mark = runs[runs["variant"] == variant].sort_values(["multiple", "flops"]), look.mark(variant)
        for _, budget in own.groupby("multiple"):
            mean = budget.groupby("flops", as_index=False)["loss"].mean()
            drawn.append(traces.line(mean["flops"], mean["loss"], mark, variant, width=1))
        drawn.append(traces.points(own["flops"], own["loss"], own["test_se"], _run_hover(own, look), mark, variant))
    x = traces.log_axis("Training compute, head included [FLOP]", runs["flops"], _power, exponentformat="power")
    return Chart(drawn, traces.layout(x, traces.log_axis(LOSS_LABEL)), run_table(runs, look))


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")  # ticks may stand at 1.5
    lead = "" if mantissa == "1.0" else f"{mantissa.removesuffix('.0')}·"
    return f"{lead}10<sup>{int(exponent)}</sup>"


def _run_hover(own: pd.DataFrame, look: Look) -> list[str]:
    """What the pointer shows of a run."""
    return [
        f"<b>{traces.text(look.label(row['variant']))}</b>, size {traces.text(row['size'])}, seed {row['seed']}<br>"
        f"loss {row['test_loss']:.3f} ± {row['test_se']:.3f} (standard error)<br>"
        f"N = {row['n_exact']:,}, {si(row['tokens'])} tokens"
        + (f", {row['flops']:.2e} FLOP" if "flops" in row else "")
        + f"<br>run {traces.text(row['run'])}"
        for row in own.to_dict("records")
    ]


def _law_hover(fit: pd.DataFrame, label: str) -> list[str]:
    return [
        f"<b>{traces.text(label)}</b>, fitted law<br>N = {row['n']:,.0f}<br>"
        f"loss {row['loss']:.3f}, interval [{row['low']:.3f}, {row['high']:.3f}]"
        for row in fit.to_dict("records")
    ]


def run_table(points: pd.DataFrame, look: Look) -> Table:
    order = look.order(points["variant"])
    ranked = points.assign(rank=points["variant"].map(order.index))
    ranked = ranked.sort_values(["rank", "multiple", "n_exact", "seed"], kind="stable")
    rows = tuple(
        (
            look.label(row["variant"]),
            row["size"],
            int(row["seed"]),
            f"{row['n_exact']:,}",
            si(row["tokens"]),
            number(row["test_loss"]),
            number(row["test_se"]),
        )
        for row in ranked.to_dict("records")
    )
    header = ("Variant", "Size", "Seed", "N", "Tokens", "Test loss [nats]", "Standard error")
    return Table("The runs of this figure", header, rows, align="llrrrrr")
