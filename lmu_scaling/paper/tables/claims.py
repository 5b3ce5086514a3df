"""The paper's claims and what this experiment says about each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmu_scaling.paper import read
from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Table, number, spread

INPUTS = ("analysis/claims.json",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    claims = read.record(inputs["analysis/claims.json"])
    return Table(
        f"The paper's claims and the verdicts of experiment {look.experiment or '?'}",
        ("", "Claim", "Place", "The paper", "Here", "Interval", "Verdict", "Why"),
        tuple(
            (
                claim["id"],
                claim["claim"],
                claim["place"],
                _text(claim["paper"]),
                _text(claim["ours"]),
                _interval(claim),
                claim["verdict"],
                claim["reason"],
            )
            for claim in claims
        ),
        widths={1: 4.5, 2: 1.8, 3: 2.0, 4: 2.2, 5: 1.6, 6: 1.9, 7: 4.5},
        breakable=True,
    )


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) else "–" if value is None else str(value)


def _interval(claim: dict[str, Any]) -> str:
    low, high = claim.get("low"), claim.get("high")
    return spread(low, high) if isinstance(low, int | float) and isinstance(high, int | float) else "–"
