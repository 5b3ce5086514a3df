"""Training curves, one panel per size, and the loss by position in the window."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lmu_scaling.paper import load
from lmu_scaling.paper.charts import traces
from lmu_scaling.paper.charts.traces import Chart, Trace
from lmu_scaling.paper.figures import per_token_loss, training_curves
from lmu_scaling.paper.style import Look, Mark, tint
from lmu_scaling.paper.tabulate import Table, number
from lmu_scaling.runtime import si

MOST_POINTS = 120  # of the training loss of a run; evenly spaced on the logarithmic axis
GAP = 0.05  # between panels, as a share of the chart


def training(results: Path, look: Look) -> Chart:
    history, counts = training_curves.contents(results / "analysis/history.parquet", results / "analysis/counts.csv")
    sizes = [size for size in load.size_names(counts) if size in set(history["size"])]
    drawn: list[Trace] = []
    named: set[str] = set()
    for i, size in enumerate(sizes, 1):
        place = {"xaxis": f"x{i}", "yaxis": f"y{i}"} if i > 1 else {}
        for variant in look.order(history["variant"]):
            for run, own in history[(history["size"] == size) & (history["variant"] == variant)].groupby("run"):
                pale, full = _run(own.sort_values("tokens"), str(run), variant, look)
                first = variant not in named
                named.add(variant)
                drawn += [pale | place, full | place | {"showlegend": first, "name": traces.text(look.label(variant))}]
    tokens = [history["tokens"].min(), history["tokens"].max()]
    y_range = [math.log10(bound) for bound in training_curves.loss_range(history)]
    layout = _panels(sizes, 1, tokens, y_range) | {"height": 430}
    narrow = _panels(sizes, len(sizes), tokens, y_range) | {"height": 150 + 240 * len(sizes)}
    return Chart(drawn, layout, _last(history, look), narrow)


def _run(own: pd.DataFrame, run: str, variant: str, look: Look) -> tuple[Trace, Trace]:
    """The training loss as a thin line, the validation loss as markers that can be pointed at."""
    mark = look.mark(variant)
    thin = own.iloc[_spaced(own["tokens"].to_numpy())]
    pale = traces.line(thin["tokens"], thin["loss"], Mark(mark.label, tint(mark.colour, 0.6), ""), variant, width=0.8)
    checked = own.dropna(subset=["validation_loss"])
    hover = [
        f"<b>{traces.text(mark.label)}</b>, size {traces.text(row['size'])}, seed {row['seed']}<br>"
        f"{si(row['tokens'])} tokens: validation loss {row['validation_loss']:.3f}<br>run {traces.text(run)}"
        for row in checked.to_dict("records")
    ]
    full = traces.line(checked["tokens"], checked["validation_loss"], mark, variant, hover, width=1.5)
    return pale, full | {"mode": "lines+markers", "marker": traces.marker(mark, 6)}


def _spaced(tokens: Any) -> Any:
    """Indices of at most `MOST_POINTS` rows, evenly spaced in the logarithm, with the first and the last."""
    if len(tokens) <= MOST_POINTS:
        return np.arange(len(tokens))
    wanted = np.geomspace(tokens[0], tokens[-1], MOST_POINTS)
    return np.unique(np.clip(np.searchsorted(tokens, wanted), 0, len(tokens) - 1))


def _panels(sizes: list[str], down: int, tokens: list[float], y_range: list[float]) -> dict[str, Any]:
    """A row or a column of panels that zoom together."""
    across = 1 if down > 1 else len(sizes)
    layout = traces.layout({}, {}, annotations=[])
    for i in range(len(sizes)):
        x, y = _share(i % across, across), _share((down - 1 - i) if down > 1 else 0, down)
        key = str(i + 1) if i else ""
        outer = across == 1 or i == 0
        x_title = "Tokens" if i >= len(sizes) - across else ""
        layout[f"xaxis{key}"] = traces.log_axis(x_title, tokens, most=4, tickformat="~s", domain=x, anchor=f"y{key}")
        layout[f"yaxis{key}"] = traces.log_axis("Loss [nats]" if outer else "", domain=y, anchor=f"x{key}")
        layout[f"yaxis{key}"] |= {"range": y_range, "showticklabels": outer}
        layout[f"xaxis{key}"] |= {"matches": "x"} if i else {}
        layout[f"yaxis{key}"] |= {"matches": "y"} if i else {}
        title = {"text": f"<b>{traces.text(sizes[i])}</b>", "x": x[0], "y": y[1], "xref": "paper", "yref": "paper"}
        inside = {"showarrow": False, "xanchor": "left", "yanchor": "top", "xshift": 6, "yshift": -2}
        layout["annotations"].append(title | inside)
    return layout


def _share(i: int, count: int) -> list[float]:
    width = (1 - GAP * (count - 1)) / count
    return [round(i * (width + GAP), 4), round(min(1.0, i * (width + GAP) + width), 4)]


def _last(history: pd.DataFrame, look: Look) -> Table:
    last = history.dropna(subset=["validation_loss"]).sort_values("tokens").drop_duplicates("run", keep="last")
    rows = [
        (look.label(row["variant"]), row["size"], int(row["seed"]), si(row["tokens"]), number(row["validation_loss"]))
        for row in last.sort_values("run").to_dict("records")
    ]
    header = ("Variant", "Size", "Seed", "Tokens", "Validation loss [nats]")
    return Table("The last validation loss of each run", header, tuple(rows), align="llrrr")


def by_position(results: Path, look: Look) -> Chart:
    losses, _, size = per_token_loss.contents({name: results / name for name in per_token_loss.INPUTS})
    drawn: list[Trace] = []
    names = look.order(losses["variant"])
    for variant in names:
        own, mark = losses[losses["variant"] == variant].sort_values("position"), look.mark(variant)
        hover = [
            f"<b>{traces.text(mark.label)}</b>, size {traces.text(size)}<br>position {row['position']:.4g}<br>"
            f"loss {row['mean']:.3f}, interval [{row['low']:.3f}, {row['high']:.3f}]"
            for row in own.to_dict("records")
        ]
        drawn.append(traces.band(own["position"], own["low"], own["high"], mark, variant))
        shown = traces.line(own["position"], own["mean"], mark, variant, hover, width=1.5)
        named = {"mode": "lines+markers", "marker": traces.marker(mark, 7), "showlegend": True}
        drawn.append(shown | named | {"name": traces.text(mark.label)})
    layout = traces.layout(
        traces.log_axis("Position in the window [tokens]", dtick=math.log10(4)), traces.log_axis("Test loss [nats]")
    )
    table = losses.pivot_table(index="position", columns="variant", values="mean", sort=True)[names]
    rows = tuple((f"{position:.4g}", *map(number, row)) for position, *row in table.itertuples())
    header = ("Position", *(look.label(name) for name in names))
    words = f"Test loss by position, size {size} [nats]"
    return Chart(drawn, layout, Table(words, header, rows, align="r" * len(header)))
