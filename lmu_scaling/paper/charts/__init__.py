"""Interactive forms of the main figures, drawn by plotly.js in the report and in the notebook.

A chart shows the same tables as the figure of its name. The figure stays in the page, for paper and for browsers that
run no scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
