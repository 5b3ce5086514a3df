"""Figure 2: the block of both LMU variants with output dimensions, from the models that were built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmu_scaling.models import architecture
from lmu_scaling.paper import diagram, load
from lmu_scaling.paper.style import SUBDUED, Look

INPUTS = ("analysis/counts.csv",)
VARIANTS = ("lmu", "lmu_attention")
BOX, GAP = 0.34, 0.24  # inches
PITCH = BOX + GAP


@dataclass(frozen=True)
class Step:
    """A box: title and formula, and the dimensions of its output as symbols and as numbers."""

    title: str
    formula: str
    symbols: str
    numbers: str
    colour: str = SUBDUED


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    counts = load.table(
        inputs["analysis/counts.csv"], "variant size n_exact d context vocab blocks ffn heads q q_reduced theta"
    )
    size = load.size_names(counts)[-1]
    rows: dict[str, Any] = {row["variant"]: row for row in counts[counts["size"] == size].to_dict("records")}
    shown = [variant for variant in VARIANTS if variant in rows]
    height = 8 * PITCH + 0.95
    figure = look.figure(2, height, height)
    axes = diagram.canvas(figure)
    width = figure.get_figwidth() / max(1, len(shown))
    for i, variant in enumerate(shown):
        _stack(axes, (i + 0.5) * width - 0.06, height - 0.12, min(width - 0.48, 2.9), variant, rows[variant], look)
    if not shown:
        axes.text(figure.get_figwidth() / 2, height / 2, "this experiment trains no LMU", ha="center", color=SUBDUED)
    return figure, _caption(rows, shown, size, look)


def _stack(axes: Axes, x: float, top: float, width: float, variant: str, row: dict[str, Any], look: Look) -> None:
    """Draw one variant, from tokens (top) to logits (bottom)."""
    mark, arch = look.mark(variant), architecture(variant)
    axes.text(x, top, mark.label, ha="center", va="top", size=9, weight="bold", color=mark.colour)
    n, d = row["context"], row["d"]
    y = top - 0.42
    y = _step(axes, x, y, width, Step("Token embedding", "", "n × d", f"{n} × {d}"))
    frame_top = y + GAP * 0.55
    for kind in arch.sublayers:
        entry = y
        for step in STEPS[kind](row, mark.colour):
            y = _step(axes, x, y, width, step)
        diagram.skip_connection(axes, x - width / 2 - 0.1, entry + GAP * 0.36, y + GAP * 0.50, x)
    frame_bottom = y + GAP * 0.34
    axes.plot([x + width / 2 + 0.05, x + width / 2 + 0.1, x + width / 2 + 0.1, x + width / 2 + 0.05],
              [frame_top, frame_top, frame_bottom, frame_bottom], color=mark.colour, linewidth=1.0)  # fmt: skip
    middle = (frame_top + frame_bottom) / 2
    axes.text(x + width / 2 + 0.12, middle, f"×{row['blocks']}", color=mark.colour, size=8.5, va="center")
    _step(axes, x, y, width, Step("Tied output head", "", "n × |V|", f"{n} × {row['vocab']}"), last=True)
    if width < 2:
        memory = f", q = {row['q']:.0f}, q′ = {row['q_reduced']:.0f}" if row["q"] == row["q"] else ""
        words = f"n = {n}, d = {d}{memory},\n|V| = {row['vocab']:,}"
        axes.text(x, y - BOX - GAP - 0.05, words, ha="center", va="top", size=6, color=SUBDUED, linespacing=1.3)


def _step(axes: Axes, x: float, y: float, width: float, step: Step, last: bool = False) -> float:
    """Draw a box whose top is at y, and the arrow that leaves it; return the top of the next box."""
    centre = y - BOX / 2
    diagram.box(axes, x, centre, width, BOX, step.colour)
    if step.formula:
        axes.text(x, centre + 0.072, step.title, ha="center", va="center", size=7 if width > 2 else 6.6)
        axes.text(x, centre - 0.078, step.formula, ha="center", va="center", size=6.6)
    else:
        axes.text(x, centre, step.title, ha="center", va="center", size=7)
    bottom = y - BOX
    diagram.arrow(axes, (x, bottom), (x, bottom - GAP + (0.06 if last else 0)))
    symbols = step.symbols if width > 2 else step.symbols.removesuffix(" each")
    axes.text(x + 0.07, bottom - GAP * 0.46, symbols, size=6, va="center", color=SUBDUED)
    if width > 2:  # in one column only the symbols fit; numbers are listed below
        axes.text(x + width / 2, bottom - GAP * 0.46, step.numbers, size=6, va="center", ha="right", color=SUBDUED)
    return bottom - GAP


def _ffn(row: dict[str, Any], colour: str) -> list[Step]:
    words = f"Feed-forward, $d' = {row['ffn']:.0f}$"
    return [Step(words, r"$\sigma(xW_1+b_1)\,W_2+b_2$", "n × d", f"{row['context']} × {row['d']}")]


def _attention(row: dict[str, Any], colour: str) -> list[Step]:
    words = f"Global attention, {row['heads']:.0f} heads"
    return [Step(words, "causal, over all positions", "n × d", f"{row['context']} × {row['d']}", colour)]


def _lmu(row: dict[str, Any], colour: str) -> list[Step]:
    n, d, q, r = row["context"], row["d"], int(row["q"]), int(row["q_reduced"])
    window, reduced = f"LMU, $\\theta = {row['theta']:g}$", f"{n} × {r} × {d}"
    memory = r"$M_t = \bar{A}M_{t-1} + \bar{B}x_t$"
    projections = r"$Q, K, V = \sigma(L_{1,2,3}\,M + b)$"
    mixture = r"$M' = \mathrm{softmax}(QK^{\top})\,V$"
    return [
        Step(window, memory, "n × q × d", f"{n} × {q} × {d}", colour),
        Step("Queries, keys, values", projections, "n × q′ × d each", reduced, colour),
        Step("Implicit self-attention", mixture, "n × q′ × d", reduced, colour),
        Step("Projection", r"$m = p\,M'$", "n × d", f"{n} × {d}", colour),
    ]


STEPS = {"ffn": _ffn, "attention": _attention, "lmu": _lmu}


def _caption(rows: dict[str, Any], shown: list[str], size: str, look: Look) -> str:
    text = (
        "LMU with implicit self-attention, with the output dimensions of each step, for the largest size "
        f"({size}). n: sequence length, d: embedding dimension, q: order of the memory, q′: reduced order, |V|: "
        "vocabulary. Grey lines are skip connections around a LayerNorm and a sub-layer; a last LayerNorm precedes the "
        "head. One variant starts its block with a feed-forward network, the other with global attention. "
    )
    for variant in shown:
        text += f"{look.label(variant)}: N = {rows[variant]['n_exact']:,} trainable non-embedding parameters. "
    for variant in VARIANTS:
        if variant not in shown:
            text += f"{look.label(variant)} is not part of this experiment. "
    return text
