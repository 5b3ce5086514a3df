"""Documents and bytes that each filter kept and dropped, in order (the paper's "additional filtering")."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lmu_scaling.paper import load
from lmu_scaling.paper.style import Look, note
from lmu_scaling.runtime import si

INPUTS = ("tokens/report.csv", "tokens/overlap.csv")
PANELS = (("documents", "Documents"), ("bytes", "Bytes of text"))
KEPT, DROPPED = "#b7c3cc", "#4a4a4a"  # greys, as colours denote variants


def draw(inputs: dict[str, Path], look: Look) -> tuple[Figure, str]:
    report = load.table(inputs["tokens/report.csv"], "filter kept_documents dropped_documents kept_bytes dropped_bytes")
    height = 0.75 + 0.24 * max(2, len(report))
    figure, panels = look.panels(2, height, 2 * height - 0.2, sharey=True)
    names = [name.replace("_", " ") for name in report["filter"]]
    for axes, (column, label) in zip(panels, PANELS, strict=True):
        if report.empty:
            note(axes, "no filter was configured")
            continue
        left = report[f"kept_{column}"]
        axes.barh(names, left, color=KEPT, height=0.62, label="kept")
        axes.barh(names, report[f"dropped_{column}"], left=left, color=DROPPED, height=0.62, label="dropped")
        for i, (kept_here, dropped_here) in enumerate(zip(left, report[f"dropped_{column}"], strict=True)):
            axes.annotate(_text(kept_here, dropped_here), (kept_here + dropped_here, i), xytext=(3, 0),
                          textcoords="offset points", va="center", size=6)  # fmt: skip
        axes.set_xlim(0, (left + report[f"dropped_{column}"]).max() * 1.3)
        axes.xaxis.set_major_locator(MaxNLocator(5, prune="upper"))
        axes.xaxis.set_major_formatter(lambda value, _: si(value) if value else "0")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(label)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    overlap = load.table(inputs["tokens/overlap.csv"], "when split documents largest_share bound documents_above")
    return figure, f"{_caption(report)} {_overlap(overlap)}"


def _text(kept: float, dropped: float) -> str:
    return f"−{dropped / max(kept + dropped, 1):.1%}" if dropped else "all kept"


def _overlap(rows: pd.DataFrame) -> str:
    """How much of the held-out text training has seen, before the filter and in the end."""
    if rows.empty:
        return "What validation and test share with training was not measured (filter containment)."
    before, after = (rows[rows["when"] == when] for when in ("before", "after"))
    return (
        f"Of the runs of words of any validation or test document at most {after['largest_share'].max():.1%} occur in "
        f"training (before the filter containment: {before['largest_share'].max():.1%}; "
        f"{before['documents_above'].sum():,} of {before['documents'].sum():,} documents were above "
        f"{before['bound'].iloc[0]:.0%})."
    )


def _caption(report: pd.DataFrame) -> str:
    if report.empty:
        return "No filter was configured: every document of the source was kept."
    last = report.iloc[-1]
    dropped = report["dropped_documents"].sum()
    return (
        f"Documents (left) and bytes (right) that each filter kept and dropped, in order of application. Of "
        f"{last['kept_documents'] + dropped:,} documents {last['kept_documents']:,} were kept "
        f"({si(last['kept_bytes'])} bytes)."
    )
