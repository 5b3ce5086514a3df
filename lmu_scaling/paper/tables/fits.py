"""Fitted power laws L = (N_c / N)^α and those of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmu_scaling.paper.style import Look
from lmu_scaling.paper.tabulate import Table, interval, number
from lmu_scaling.runtime import read_json

INPUTS = ("analysis/fits.json",)


def rows(inputs: dict[str, Path], look: Look) -> Table:
    fits = read_json(inputs["analysis/fits.json"])
    order = look.order(fit["variant"] for fit in fits["power"])
    fitted = [fit for fit in fits["power"] if fit.get("fitted", True)]
    power = sorted(fitted, key=lambda fit: (order.index(fit["variant"]), fit["multiple"]))
    body = tuple(
        (
            look.label(fit["variant"]),
            f"{fit['multiple']:g}×",
            fit["sizes"],
            fit["seeds"],
            number(fit["alpha"], 4),
            interval(fit["alpha_low"], fit["alpha_high"], 4),
            number(fit.get("paper_alpha"), 3),
            number(fit["n_c"]),
            interval(fit["n_c_low"], fit["n_c_high"]),
            number(fit.get("paper_n_c")),
            number(fit["r2"], 4),
            _floor(fits.get("saturating", []), fit),
        )
        for fit in power
    )
    return Table(
        f"Fitted laws L = (N_c/N)^α with {100 * fits.get('confidence', 0.95):.6g}% intervals, and the paper's values",
        ("Variant", "Tokens", "Sizes", "Seeds", "α", "interval", "paper", "N_c", "interval", "paper", "R²", "Floor E"),
        body,
        align="llrrrlrrlrrl",
        note=_notes(fits["power"], look),
    )


def _notes(power: list[dict[str, Any]], look: Look) -> str:
    """Reasons for missing laws."""
    missing = [fit for fit in power if not fit.get("fitted", True)]
    reasons = dict.fromkeys(
        f"{look.label(fit['variant'])} at {fit['multiple']:g}×: {fit.get('note', 'not fitted')}" for fit in missing
    )
    return ". ".join(reasons) + ("." if reasons else "")


def _floor(saturating: list[dict[str, Any]], fit: dict[str, Any]) -> str:
    """E of the saturating law E + A N^-α, if it is identified."""
    for other in saturating:
        if (other["variant"], other["multiple"]) == (fit["variant"], fit["multiple"]):
            return number(other["E"], 2) if other.get("identified") else "not identified"
    return "–"
