"""Test loss minus the LMU's at equal size and tokens, for each variant and each other setting that was tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.analysis.table import MAIN, usable
from lmu_scaling.paper import load
from lmu_scaling.paper.axes import N_LABEL, EndLabel, label_ends, label_free_spot, log_axis, set_log_limits
from lmu_scaling.paper.layers import Layers
from lmu_scaling.paper.style import SUBDUED, Look, note
from lmu_scaling.runtime import read_json

INPUTS = ("analysis/runs.csv", "analysis/fits.json")
REFERENCE = "lmu"
TIE = 0.03  # nats: settings that change a loss by less are named in the caption and not drawn
RUN_COLUMNS = "run variant size multiple seed setting n_exact test_loss excluded"


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    runs = usable(load.table(inputs["analysis/runs.csv"], RUN_COLUMNS).fillna({"excluded": ""}))
    points = differences(read_json(inputs["analysis/fits.json"])["comparisons"])
    tried = alternatives(runs)
    others = tried[tried["largest"] >= TIE]
    variants = look.order(points["variant"])
    figure = look.figure(2, 3.3, 3.4)
    axes = figure.subplots()
    marks = {variant: look.mark(variant) for variant in variants}
    layers = Layers("n", "difference", "variant", marks).lines(points, linewidth=1.1).points(points, unit="point")
    layers.on(axes)
    axes.axhline(0, color=look.mark(REFERENCE).colour, linewidth=1.4, zorder=2)
    axes.set_xscale("log")
    axes.set_ylabel(f"Test loss above that of the {look.label(REFERENCE)} [nats]")
    n = pd.concat([points["n"], others["n"]])
    if n.empty:
        note(axes, f"no other variant has a size in common with the {look.label(REFERENCE)}")
        axes.set_xlabel(N_LABEL)
        return figure, _caption(points, tried, look)
    set_log_limits(axes, n)
    log_axis(axes.xaxis, N_LABEL)
    name = look.label(REFERENCE)
    for height, side, place in (
        (0.98, f"↑ worse than the {name}", "top"),
        (0.02, f"↓ better than the {name}", "bottom"),
    ):
        axes.text(0.015, height, side, transform=axes.transAxes, va=place, size=6, color=SUBDUED)
    _draw_alternatives(axes, points, others, look, named=look.wide(figure))
    last = points.sort_values("n").groupby("variant").last()
    last.loc[REFERENCE, ["n", "difference"]] = n.max(), 0.0
    ends = zip(last.index, last["n"], last["difference"], strict=True)
    label_ends(axes, [EndLabel(n, loss, look.label(name), look.mark(name).colour) for name, n, loss in ends])
    return figure, _caption(points, tried, look)


def differences(comparisons: list[dict[str, Any]]) -> pd.DataFrame:
    """Loss of each variant minus the LMU's at every size, with intervals, from the comparisons of fits.json."""
    found = [
        {
            "variant": entry["b"] if sign > 0 else entry["a"],
            "size": size["size"],
            "n": size["n"],
            "difference": sign * size["difference"],
            "low": min(sign * size["low"], sign * size["high"]),
            "high": max(sign * size["low"], sign * size["high"]),
        }
        for entry in comparisons
        if REFERENCE in (entry["a"], entry["b"]) and entry["multiple"] == 1
        for sign in [1 if entry["a"] == REFERENCE else -1]
        for size in entry["per_size"]
    ]
    table = pd.DataFrame(found, columns=["variant", "size", "n", "difference", "low", "high"])
    return table.assign(point=table["variant"] + " " + table["size"].astype(str))


def alternatives(runs: pd.DataFrame) -> pd.DataFrame:
    """The same for runs with another setting, against LMUs of the same size and seed.

    `effect` is the change of the variant's own loss, `largest` the largest one of the setting at any size.
    """
    runs = runs[runs["multiple"] == 1]
    main = runs[runs["setting"] == MAIN]
    lmu = main[main["variant"] == REFERENCE]
    both = runs[runs["setting"] != MAIN].merge(
        lmu[["size", "seed", "test_loss"]], on=["size", "seed"], suffixes=("", "_lmu")
    )
    own = main[["variant", "size", "seed", "test_loss"]]
    both = both.merge(own, on=["variant", "size", "seed"], how="left", suffixes=("", "_own"))
    both["n"] = both["n_exact"].astype(float)
    both["difference"] = both["test_loss"] - both["test_loss_lmu"]
    both["effect"] = both["test_loss"] - both["test_loss_own"]
    keys, values = ["variant", "setting", "size"], ["n", "difference", "effect"]
    found = both.groupby(keys, sort=False)[values].mean().reset_index()
    largest = found["effect"].abs().groupby([found["variant"], found["setting"]]).transform("max")
    return found.assign(largest=largest.fillna(TIE))  # drawn if the variant itself has no run of that seed


def _draw_alternatives(axes: Axes, points: pd.DataFrame, others: pd.DataFrame, look: Look, named: bool) -> None:
    """Hollow markers, joined to the variant's own by a dotted line; `named`: labels name the variant as well."""
    own = dict(zip(zip(points["variant"], points["size"], strict=True), points["difference"], strict=True))
    groups = [(str(keys[0]), str(keys[1]), rows) for keys, rows in others.groupby(["variant", "setting"], sort=False)]
    for variant, _, rows in groups:
        mark = look.mark(variant)
        for size, n, difference in zip(rows["size"], rows["n"], rows["difference"], strict=True):
            start = own.get((variant, size), 0.0)
            axes.plot([n, n], [start, difference], ":", color=mark.colour, linewidth=0.8, zorder=2.2)
        axes.plot(rows["n"], rows["difference"], mark.marker, color=mark.colour, markerfacecolor="white", zorder=3.2)
    for variant, setting, rows in groups:
        text = f"{_setting(setting)}, untuned"
        spots = list(zip(rows["n"], rows["difference"], strict=True))
        label_free_spot(axes, spots, f"{look.label(variant)}, {text}" if named else text, look.mark(variant).colour)


def _setting(name: str) -> str:
    return name.replace("_", " ")


def _caption(points: pd.DataFrame, tried: pd.DataFrame, look: Look) -> str:
    lmu = look.label(REFERENCE)
    text = (
        f"Test loss of each variant minus that of the {lmu}, at equal size and tokens, with intervals: above zero the "
        f"{lmu} is better. "
    )
    drawn = tried["largest"] >= TIE
    if drawn.any():
        text += (
            "Hollow markers are runs with another setting and without a search of their own, against "
            f"{lmu}s of the same seed ({_named(tried[drawn], look)}). "
        )
    if not drawn.all():
        text += (
            f"Other settings that were tried changed a loss by less than {TIE:g} nats at any size and are not drawn "
            f"({_named(tried[~drawn], look)}). "
        )
    if points.empty:
        text += f"No other variant has a size in common with the {lmu}. "
    return text


def _named(tried: pd.DataFrame, look: Look) -> str:
    pairs = tried.drop_duplicates(["variant", "setting"])
    return "; ".join(
        f"{look.label(variant)}: {', '.join(map(_setting, pairs.loc[pairs['variant'] == variant, 'setting']))}"
        for variant in look.order(pairs["variant"])
    )
