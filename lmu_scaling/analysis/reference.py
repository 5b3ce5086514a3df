"""Reference laws: Kaplan's transformer law in three readings, and the paper's own fits (section 5).

All constants come from `lmu_scaling/catalog/paper.yaml`. The printed transformer law has a term (S/S_min) that does not
depend on S; Kaplan et al. (2020, eq. 1.6) have (S_c/S_min). Readings differ in the loss at which B_crit is taken:

* `kaplan_comment`: at the power law in the LaTeX comment beside the paper's formula; this one is drawn;
* `kaplan_self`: at the loss itself, solved self-consistently;
* `literal`: the formula as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import ArrayLike, NDArray

from lmu_scaling.errors import ResultsError
from lmu_scaling.paths import PAPER

READINGS = ("kaplan_comment", "kaplan_self", "literal")
Array = NDArray[np.float64]


def load_paper(path: str | Path = PAPER) -> dict[str, Any]:
    """Load the paper's printed numbers."""
    try:
        return yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ResultsError(f"cannot read the paper's numbers: {error}", str(path), "restore the file") from error


@dataclass(frozen=True)
class PowerLaw:
    """L = (N / n_c)^-alpha."""

    n_c: float
    alpha: float

    def loss(self, n: ArrayLike) -> Array:
        return (np.asarray(n, float) / self.n_c) ** -self.alpha

    def parameters(self, loss: ArrayLike) -> Array:
        """N at which the law gives this loss."""
        return self.n_c * np.asarray(loss, float) ** (-1 / self.alpha)


@dataclass(frozen=True)
class PerTokenLaw:
    """L(T) = e + a T^-exponent (Kaplan, fig. 20)."""

    e: float
    a: float
    exponent: float

    def loss(self, position: ArrayLike) -> Array:
        return self.e + self.a * np.asarray(position, float) ** -self.exponent


@dataclass(frozen=True)
class TransformerLaw:
    """L(N, S) of transformers in one of three readings; S counts steps of `batch_tokens` tokens."""

    n_c: float
    alpha_n: float
    s_c: float
    alpha_s: float
    batch_tokens: float
    b_star: float
    alpha_b: float
    comment_n_c: float
    comment_alpha: float
    n_range: tuple[float, float]
    """Sizes of the transformers behind the law."""
    reading: str = "kaplan_comment"

    def limit(self, n: ArrayLike) -> Array:
        """Loss after infinitely many steps."""
        return (np.asarray(n, float) / self.n_c) ** -self.alpha_n

    def critical_batch(self, loss: ArrayLike) -> Array:
        """B_crit [tokens] at a loss (Kaplan eq. 5.3)."""
        return self.b_star / np.asarray(loss, float) ** (1 / self.alpha_b)

    def _comment_batch(self, n: ArrayLike) -> Array:
        return self.critical_batch((np.asarray(n, float) / self.comment_n_c) ** -self.comment_alpha)

    def loss(self, n: ArrayLike, steps: ArrayLike) -> Array:
        """Cross-entropy [nats] of N non-embedding parameters after `steps` steps (may be infinite)."""
        n, steps = np.broadcast_arrays(np.asarray(n, float), np.asarray(steps, float))
        if self.reading == "literal":
            return self.limit(n) + (1 + self._comment_batch(n) / self.batch_tokens) ** -self.alpha_s
        if self.reading == "kaplan_comment":
            return self._at(n, steps, self._comment_batch(n))
        low, high = self.limit(n), self.limit(n) + 1e3
        for _ in range(200):  # bisection: the right-hand side falls with the loss, so the fixed point is unique
            middle = (low + high) / 2
            above = self._at(n, steps, self.critical_batch(middle)) > middle
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return (low + high) / 2

    def _at(self, n: Array, steps: Array, critical: Array) -> Array:
        s_min = steps / (1 + critical / self.batch_tokens)
        return self.limit(n) + (self.s_c / s_min) ** self.alpha_s

    def steps(self, n: ArrayLike, loss: ArrayLike) -> Array:
        """Steps needed to reach a loss; infinite at and below the limit."""
        if self.reading == "literal":
            raise ResultsError(
                "the literal transformer law does not depend on the number of steps",
                "analysis.reference",
                "use kaplan_comment or kaplan_self",
            )
        n, loss = np.broadcast_arrays(np.asarray(n, float), np.asarray(loss, float))
        excess = loss - self.limit(n)
        critical = self._comment_batch(n) if self.reading == "kaplan_comment" else self.critical_batch(loss)
        with np.errstate(divide="ignore", invalid="ignore"):
            s_min = self.s_c / np.where(excess > 0, excess, np.nan) ** (1 / self.alpha_s)
        return np.where(excess > 0, s_min * (1 + critical / self.batch_tokens), np.inf)

    def parameters(self, loss: ArrayLike, steps: float) -> Array:
        """Smallest N within `n_range` that reaches a loss after `steps` steps; infinite if none does."""
        loss = np.asarray(loss, float)
        a, b = (np.full(loss.shape, np.log(end)) for end in self.n_range)
        reachable = self.loss(np.exp(b), steps) <= loss
        for _ in range(100):
            middle = (a + b) / 2
            above = self.loss(np.exp(middle), steps) > loss
            a, b = np.where(above, middle, a), np.where(above, b, middle)
        return np.where(reachable, np.exp((a + b) / 2), np.inf)


def power_laws(paper: dict[str, Any]) -> dict[str, PowerLaw]:
    return {name: PowerLaw(law["n_c"], law["alpha"]) for name, law in paper["power_laws"].items()}


def per_token_laws(paper: dict[str, Any]) -> list[tuple[str, PerTokenLaw]]:
    return [(law["label"], PerTokenLaw(law["e"], law["a"], law["exponent"])) for law in paper["per_token_laws"]]


def transformer_law(paper: dict[str, Any], reading: str = "kaplan_comment") -> TransformerLaw:
    if reading not in READINGS:
        raise ResultsError(
            f"unknown reading {reading!r} of the transformer law", "analysis.reference", f"use {', '.join(READINGS)}"
        )
    law = paper["transformer_law"]
    constants = {name: law[name] for name in TransformerLaw.__dataclass_fields__ if name != "reading"}
    return TransformerLaw(**constants, reading=reading)
