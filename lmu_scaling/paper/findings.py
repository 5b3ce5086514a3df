"""The first screen of the report: what was found, in a few sentences that are computed from the results."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.analysis.claims.common import Support, Verdict
from lmu_scaling.analysis.multipliers import at_main_budget
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.paper import load, tabulate
from lmu_scaling.paper.badges import BADGES, SUPPORT_BADGES, badge
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import interval, number
from lmu_scaling.runtime import read_json

RUN_COLUMNS = "variant size multiple n_exact test_loss"
EXPONENT = ("alpha", "alpha_low", "alpha_high")
SAID: dict[str, tuple[str, tuple[str, str]]] = {  # verdicts that say something: how, and their badge
    Verdict.REPRODUCED: ("reproduced", BADGES[Verdict.REPRODUCED]),
    Verdict.NOT_REPRODUCED: ("not reproduced", BADGES[Verdict.NOT_REPRODUCED]),
    Support.SUPPORTS: ("supported under the conditions of this experiment", SUPPORT_BADGES[Support.SUPPORTS]),
    Support.CONTRADICTS: ("contradicted under the conditions of this experiment", SUPPORT_BADGES[Support.CONTRADICTS]),
}


def findings(results: Path, look: Look) -> str:
    """Losses at the largest size, exponents, factor of tokens, and the claims on which there is a verdict."""
    runs = load.runs(results / "analysis/runs.csv", RUN_COLUMNS)
    fits = read_json(results / "analysis/fits.json")
    claims = read_json(results / "analysis/claims.json")
    ranked = ranking(runs, fits)
    sentences = [_best(ranked, look), _exponents(fits, look), _tokens(results, look), _decided(claims)]
    items = "".join(f"<li>{sentence}</li>" for sentence in sentences if sentence)
    return f'<section class="findings"><ul>{items}</ul>{_table(ranked, fits, look)}{_undecided(claims)}</section>'


def ranking(runs: pd.DataFrame, fits: dict[str, Any]) -> pd.DataFrame:
    """Variants at the largest size they share with others, best first, with their distance from the best.

    Columns: variant, size, n, loss (mean over seeds), above, low, high (interval of `above`; NaN for the best).
    """
    main = runs[runs["multiple"] == 1] if runs["multiple"].eq(1).any() else runs
    size = load.size_names(main)[-1]
    own = main[main["size"] == size].groupby("variant", as_index=False)
    table = own.agg(n=("n_exact", "first"), loss=("test_loss", "mean"), seeds=("test_loss", "size"))
    table = table.sort_values("loss", kind="stable").reset_index(drop=True).assign(size=size)
    best = table.loc[0, "variant"]
    gaps = [_gap(fits["comparisons"], str(best), str(other), size) for other in table["variant"]]
    return table.assign(**{name: [gap[i] for gap in gaps] for i, name in enumerate(("above", "low", "high"))})


def _gap(comparisons: list[dict[str, Any]], best: str, other: str, size: str) -> tuple[float, float, float]:
    """Loss of `other` minus loss of `best` at this size, with its interval."""
    for entry in comparisons:
        if entry["multiple"] != 1 or {entry["a"], entry["b"]} != {best, other}:
            continue
        sign = 1 if entry["a"] == best else -1
        for row in entry["per_size"]:
            if row["size"] == size:
                low, high = sorted((sign * row["low"], sign * row["high"]))
                return sign * row["difference"], low, high
    return math.nan, math.nan, math.nan


def _best(ranked: pd.DataFrame, look: Look) -> str:
    first = ranked.iloc[0]
    text = (
        f"<strong>{escape(look.label(first['variant']))}</strong> has the lowest test loss at the largest size "
        f"({escape(first['size'])}, N = {first['n']:,}): <strong>{first['loss']:.3f}</strong> nats per token"
    )
    others = ranked.iloc[1:].dropna(subset=["low"])
    clear, open_ones = (
        [look.label(name) for name in others.loc[mask, "variant"]] for mask in (others["low"] > 0, others["low"] <= 0)
    )
    if clear:
        text += f". The interval of its lead over {escape(_and(clear))} excludes zero"
    if open_ones:
        text += f"{', that' if clear else '. The interval of its lead'} over {escape(_and(open_ones))} does not"
        text += "" if clear else " exclude zero"
    return text + "."


def _exponents(fits: dict[str, Any], look: Look) -> str:
    own = [fit for fit in fits["power"] if fit.get("fitted", True) and fit["multiple"] == 1]
    order = look.order(fit["variant"] for fit in own)
    own.sort(key=lambda fit: order.index(fit["variant"]))
    words = [
        "{} {} [{}, {}]".format(
            escape(look.label(fit["variant"])), *(f"{fit[key]:.3f}".replace("-", "−") for key in EXPONENT)
        )
        for fit in own
    ]
    return f"The loss falls as N<sup>−α</sup>, with α: {'; '.join(words)}." if words else ""


def _tokens(results: Path, look: Look) -> str:
    """How many times the tokens our transformer needs for the loss of the LMU, at the largest size."""
    table = load.table(results / "analysis/multipliers.csv", "quantity variant against n value low high beyond")
    table = at_main_budget(table)
    own = table[(table["quantity"] == "tokens") & (table["variant"] == "lmu") & (table["against"] == "transformer")]
    if own.empty:
        return ""
    row = own.sort_values("n").iloc[-1]
    if row["low"] <= 0 and math.isinf(row["high"]):
        return ""  # any number of tokens: nothing was found
    sign = "more than " if row["beyond"] else "less than " if row.get("below", False) else ""
    value = "no number of" if math.isinf(row["value"]) else f"{sign}{row['value']:.2g}× the"
    claimed = load_paper()["data_efficiency"]["token_multiplier"]
    return (
        f"To reach the loss of the {escape(look.label('lmu'))} there, a "
        f"{escape(look.label('transformer').lower())} needs <strong>{value} tokens</strong> "
        f"{interval(row['low'], row['high'], 1)}; the paper says {claimed}×."
    )


def _decided(claims: list[dict[str, Any]]) -> str:
    """The claims on which there is a verdict, by verdict."""
    parts = []
    for verdict, (words, look) in SAID.items():
        own = [claim for claim in claims if verdict in (claim["verdict"], claim["conceptual"])]
        if own:
            links = ", ".join(
                f'<a href="#{escape(claim["id"])}" title="{escape(claim["claim"])}">{escape(claim["id"])}</a>'
                for claim in own
            )
            parts.append(f"{badge(look, f'{len(own)} {words}')} {links}")
    return f"Of the paper's claims: {' '.join(parts)}" if parts else ""


def _undecided(claims: list[dict[str, Any]]) -> str:
    open_ones = [claim for claim in claims if claim["verdict"] not in SAID and claim["conceptual"] not in SAID]
    if not open_ones:
        return ""
    names = ", ".join(escape(claim["id"]) for claim in open_ones)
    why = '<a href="#verdicts">why, and what was measured</a>'
    return f"<p><small>No verdict at this scale on {names}; {why}.</small></p>"


def _table(ranked: pd.DataFrame, fits: dict[str, Any], look: Look) -> str:
    confidence = f"{100 * fits.get('confidence', 0.95):.6g}%"
    rows = tuple(
        (
            look.label(row["variant"]),
            number(row["loss"]),
            "–" if i == 0 else f"{number(row['above'])} {interval(row['low'], row['high'])}",
        )
        for i, (_, row) in enumerate(ranked.iterrows())
    )
    caption = f"Test loss at size {ranked['size'].iloc[0]} [nats per token], mean over seeds, equal tokens"
    header = ("Variant", "Loss", f"Above the best, {confidence} interval")
    return tabulate.html(tabulate.Table(caption, header, rows, align="lrr"))


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
