"""Verdicts as small coloured labels of the report; each has a sign as well, for readers who see no colours."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from lmu_scaling.analysis.claims.common import Support, Verdict

BADGES = {  # sign, and class in report.css
    Verdict.REPRODUCED: ("✓", "good"),
    Verdict.NOT_REPRODUCED: ("✗", "bad"),
    Verdict.INCONCLUSIVE: ("?", "open"),
    Verdict.NOT_TESTABLE: ("–", "mute"),
}
SUPPORT_BADGES = {
    Support.SUPPORTS: ("✓", "good"),
    Support.CONTRADICTS: ("✗", "bad"),
    Support.INCONCLUSIVE: ("?", "open"),
    Support.NOT_MET: ("–", "mute"),
    Support.NOT_APPLICABLE: ("", "mute"),
}


def badge(look: tuple[str, str], text: str) -> str:
    return f'<span class="badge {look[1]}">{look[0]} {escape(text)}</span>'


def tally(
    title: str,
    claims: list[dict[str, Any]],
    key: str,
    badges: Mapping[Any, tuple[str, str]],
    meaning: Mapping[Any, str],
) -> str:
    """How many claims have each verdict, and what the verdicts mean."""
    counts = "".join(
        badge(look, f"{number} {verdict}")
        for verdict, look in badges.items()
        if (number := sum(claim[key] == verdict for claim in claims))
    )
    legend = " ".join(f"<em>{str(verdict).capitalize()}</em>: {text}." for verdict, text in meaning.items())
    return f'<h3>{escape(title)}</h3><p class="tally">{counts}</p><p><small>{legend}</small></p>'
