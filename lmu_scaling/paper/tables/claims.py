"""The paper's claims and the verdict of this experiment on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Table, interval, number
from lmu_scaling.runtime import read_json

INPUTS = ("analysis/claims.json",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    claims = read_json(inputs["analysis/claims.json"])
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
    return interval(low, high) if isinstance(low, int | float) and isinstance(high, int | float) else "–"
