"""Charts as HTML: their data in the page, and the two scripts that draw them.

The page's security policy names these scripts by their hashes, so that no other script runs, whatever the data hold.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path

from lmu_scaling.paper import tabulate
from lmu_scaling.paper.charts import curves, runs
from lmu_scaling.paper.charts.traces import Chart
from lmu_scaling.paper.style import Look

CHARTS: dict[str, Callable[[Path, Look], Chart]] = {
    "loss_vs_N": runs.against_size,
    "loss_vs_N_10x": runs.against_size_and_budget,
    "loss_vs_compute": runs.against_compute,
    "training_curves": curves.training,
    "per_token_loss": curves.by_position,
}
HERE = Path(__file__).parent
HINT = (
    "Point at a marker to see its run. Click on the legend, or press Tab and Enter, to hide or show a series; drag to "
    "zoom, double-click to return. The caption describes the printed figure."
)
SCRIPTS = (HERE / "vendor/plotly-basic.min.js", HERE / "charts.js")


def chart(name: str, results: Path, look: Look, words: str) -> str:
    """The chart of a figure, and its numbers as a table; nothing if the figure has none. `words`: what it shows."""
    if name not in CHARTS:
        return ""
    made = CHARTS[name](results, look)
    content = {"data": made.traces, "layout": made.layout, "narrow": made.narrow}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    label = f"Interactive chart. {words}. The table below has the same numbers"
    return (
        f'<div class="chart" role="group" aria-label="{escape(label)}" hidden></div>'
        f'<script type="application/json">{safe}</script><p class="hint"><small>{HINT}</small></p>'
        f'<details class="numbers"><summary>The numbers of this figure</summary>{tabulate.html(made.table)}</details>'
    )


def scripts() -> str:
    """The library and our own few lines, inline."""
    return "".join(f"<script>{text}</script>" for text in _texts())


def policy() -> str:
    """The sources of scripts for a content security policy."""
    digests = (hashlib.sha256(text.encode()).digest() for text in _texts())
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


@cache
def _texts() -> tuple[str, ...]:
    return tuple(path.read_text("utf-8") for path in SCRIPTS)
