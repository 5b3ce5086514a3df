"""What the paper prints and what follows from its own numbers, with the reason (lmu_scaling/catalog/paper.yaml)."""

from __future__ import annotations

from pathlib import Path

from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Table

INPUTS = ()


def rows(inputs: dict[str, Path], look: Look) -> Table:
    slips = load_paper()["corrected"]
    return Table(
        "Slips in the paper, as printed and corrected",
        ("Place", "Printed", "Corrected", "Why"),
        tuple((slip["place"], slip["printed"], slip["corrected"], slip["note"]) for slip in slips),
        widths={0: 3.2, 1: 4.6, 2: 4.6, 3: 8.0},
    )
