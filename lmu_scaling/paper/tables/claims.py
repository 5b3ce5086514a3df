"""The paper's claims and the two verdicts of this experiment on each: direct and conceptual replication."""

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
        ("", "Claim", "Against", "The paper", "Here", "Interval", "Direct", "Conceptual", "Why"),
        tuple(
            (
                claim["id"],
                f"{claim['claim']} ({claim['place']})",
                claim["baseline"] or "–",
                _text(claim["paper"]),
                _text(claim["ours"]),
                _interval(claim),
                claim["verdict"],
                claim["conceptual"],
                _why(claim),
            )
            for claim in claims
        ),
        widths={1: 4.0, 2: 2.0, 3: 2.0, 4: 2.0, 5: 1.6, 6: 1.7, 7: 1.7, 8: 6.5},
        breakable=True,
        note="Direct: at the paper's scale. Conceptual: the same qualitative claim under the conditions of this "
        "experiment, which is never a reproduction.",
    )


def _why(claim: dict[str, Any]) -> str:
    if claim["conceptual"] == "not applicable":
        return claim["reason"]
    return f"Direct: {claim['reason']} Conceptual: {claim['conceptual_reason']}"


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) else "–" if value is None else str(value)


def _interval(claim: dict[str, Any]) -> str:
    low, high = claim.get("low"), claim.get("high")
    return interval(low, high) if isinstance(low, int | float) and isinstance(high, int | float) else "–"
