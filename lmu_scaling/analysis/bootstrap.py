"""Hierarchical bootstrap of the runs: sizes fixed, seeds resampled, test sequences resampled (docs/claims.md).

Every draw perturbs all cells (variant x size x budget) together, so that everything computed from a draw (a fit, a
difference, a multiplier) is consistent with every other number of the same draw:

* Test sequences are resampled in contiguous blocks, the same blocks for all runs: documents where there are fewer than
  300 of them, else 400 blocks. All models read the same text, so a hard block raises all losses, and differences
  between models stay precise. As for seeds, the spread of few blocks is inflated and widened.
* Seeds are resampled as residuals of ln L from the mean of their cell, pooled over the cells of a variant, inflated by
  √(s/(s-1)) because s seeds lie closer to their own mean, and widened by √(f/χ²_f) because the spread is estimated
  from only f degrees of freedom. With 2 or 3 seeds the plain bootstrap is far too narrow (docs/coverage.md).
* Without repeated seeds the spread comes from the other variants, else from the scatter about a power law (see
  `_scatter_draws`), else 0.02 nats are assumed. `Noise.source` says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.laws import SumFit, fit_power
from lmu_scaling.errors import ResultsError

Array = NDArray[np.float64]
CELL = ["variant", "size", "multiple"]
BLOCKS = 400
FEW_DOCUMENTS = 300
ASSUMED_NATS = 0.02
MIN_FREEDOM = 3


@dataclass(frozen=True)
class Noise:
    """Spread of ln L between seeds, and what it was estimated from."""

    sigma: float
    freedom: int
    source: str
    residuals: Array
    scattered: tuple[int, ...] = ()  # cells whose scatter about a power law was used


@dataclass(frozen=True)
class Cells:
    """One row of `frame` per variant, size and budget; `log_loss` [b, cells] are the draws, `point` the estimates."""

    frame: pd.DataFrame
    point: Array
    log_loss: Array
    noise: dict[str, Noise]
    confidence: float

    def select(self, variant: str, multiple: float | None = 1.0, size: str | None = None) -> NDArray[np.int64]:
        """Row numbers of the cells of a variant, in order of N and tokens."""
        mask = self.frame["variant"] == variant
        if multiple is not None:
            mask &= self.frame["multiple"] == multiple
        if size is not None:
            mask &= self.frame["size"] == size
        rows = self.frame[mask].sort_values(["n", "tokens"])
        return rows.index.to_numpy()

    def distinct_n(self, rows: NDArray[np.int64] | list[int]) -> int:
        """Number of distinct N among cells: sizes that differ in q only give transformers of equal N."""
        return int(self.frame.loc[rows, "n"].nunique())

    def interval(self, draws: Array, axis: int = 0) -> tuple[Any, Any]:
        return interval(draws, self.confidence, axis)


def interval(draws: Array, confidence: float, axis: int = 0) -> tuple[Any, Any]:
    """Percentile interval; infinite draws count, NaN draws do not."""
    tail = (1 - confidence) / 2
    ordered = np.sort(draws, axis=axis)  # nan last
    valid = np.isfinite(ordered) | np.isinf(ordered)
    number = valid.sum(axis=axis, keepdims=True)
    low = np.clip(np.floor(tail * (number - 1)).astype(int), 0, None)
    high = np.clip(np.ceil((1 - tail) * (number - 1)).astype(int), 0, None)
    ends = [np.take_along_axis(ordered, index, axis=axis).squeeze(axis) for index in (low, high)]
    return ends[0], ends[1]


def sum_intervals(point: SumFit, drawn: SumFit, confidence: float, *exponents: str) -> dict[str, float]:
    """Every parameter of a sum of powers with its interval: E, E_low, E_high, A, …"""
    found: dict[str, float] = {}
    draws = drawn.parameters(*exponents)
    for name, value in point.parameters(*exponents).items():
        low, high = interval(draws[name], confidence)
        found |= {name: float(value[0]), f"{name}_low": float(low), f"{name}_high": float(high)}
    return found


def make_cells(table: pd.DataFrame, blocks: tuple[Array, Array], draws: int, confidence: float, seed: int) -> Cells:
    """Bootstrap draws of ln L for every cell of the table, which must not contain excluded runs.

    `blocks`: summed losses and token counts of each run in each block of the test set (`block_sums`).
    """
    rng = np.random.default_rng(seed)
    table = table.reset_index(drop=True)
    frame = _cell_frame(table)
    number = pd.Series(frame.index, index=pd.MultiIndex.from_frame(frame[CELL]))
    cell_of_run = number.loc[pd.MultiIndex.from_frame(table[CELL])].to_numpy()
    log_loss_r = np.log(table["test_loss"].to_numpy(float))
    average = np.zeros((len(frame), len(table)))
    average[cell_of_run, np.arange(len(table))] = 1 / frame["seeds"].to_numpy()[cell_of_run]
    shift_br = _sequence_shift(*blocks, draws, rng)
    noises = _noises(table, frame, cell_of_run, log_loss_r, average)
    noise_br = np.zeros((draws, len(table)))
    for variant, noise in noises.items():
        runs = np.flatnonzero((table["variant"] == variant).to_numpy())
        noise_br[:, runs] = _seed_draws(noise, draws, len(runs), rng)
        if noise.scattered:
            off_law = _scatter_draws(noise, frame.loc[list(noise.scattered), "n"].to_numpy(float), draws, rng)
            for cell, drawn_b in zip(noise.scattered, off_law.T, strict=True):
                noise_br[:, cell_of_run == cell] = drawn_b[:, None]
    point = average @ log_loss_r
    return Cells(frame, point, point + (shift_br + noise_br) @ average.T, noises, confidence)


def _cell_frame(table: pd.DataFrame) -> pd.DataFrame:
    grouped = table.groupby(CELL, sort=False)
    frame = grouped.agg(
        n=("n_exact", "first"),
        n_kaplan=("n_kaplan", "first"),
        tokens=("tokens", "first"),
        steps=("steps", "first"),
        flops_per_token=("flops_per_token", "first"),
        flops_per_token_body=("flops_per_token_body", "first"),
        seeds=("seed", "count"),
    )
    known = "precision" in table
    frame["precision"] = grouped["precision"].agg(lambda found: " and ".join(sorted(set(found)))) if known else ""
    for column in ("n_exact", "tokens"):
        if (grouped[column].nunique() > 1).any():
            raise ResultsError(
                f"seeds of one cell differ in {column}", "table of runs", "give each size one N and each budget one D"
            )
    return frame.reset_index()


# ------------------------------------------------------------------------------------------------ test sequences
def _sequence_shift(losses: Array, tokens: Array, draws: int, rng: np.random.Generator) -> Array:
    """Change of ln L when the test set is resampled, [b, runs]."""
    weights = rng.multinomial(tokens.shape[1], np.full(tokens.shape[1], 1 / tokens.shape[1]), size=draws).astype(float)
    resampled = (weights @ losses.T) / (weights @ tokens.T)
    shift = np.log(resampled) - np.log(losses.sum(axis=1) / tokens.sum(axis=1))
    return shift * few_blocks(tokens.shape[1], draws, rng)


def few_blocks(blocks: int, draws: int, rng: np.random.Generator) -> Array:
    """Factor for the spread of resampled blocks, [b, 1]: inflated by √(k/f) and widened by √(f/χ²_f), f = k - 1."""
    return np.sqrt(blocks / rng.chisquare(blocks - 1, draws))[:, None] if blocks > 1 else np.ones((draws, 1))


def block_sums(results: Path, runs: list[str]) -> tuple[Array, Array]:
    """Summed loss and number of tokens, each [runs, blocks]; blocks are contiguous, as documents cross windows."""
    losses, tokens, windows = [], [], None
    for run in runs:
        frame = read_sequences(results, run, ["window", "document", "loss", "tokens"])
        if windows is not None and not np.array_equal(windows, frame["window"]):
            raise ResultsError(
                f"{run} was evaluated on other test sequences than {runs[0]}",
                str(results / "evaluation" / run),
                "evaluate all runs with the same settings",
            )
        windows = frame["window"].to_numpy()
        starts = block_starts(frame["document"].to_numpy())
        total = (frame["loss"] * frame["tokens"]).to_numpy(float)
        losses.append(np.add.reduceat(total, starts))
        tokens.append(np.add.reduceat(frame["tokens"].to_numpy(float), starts))
    return np.array(losses), np.array(tokens)


def block_starts(document_of_window: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where blocks of windows begin: at each document where these are few, else at equal distances."""
    windows = len(document_of_window)
    begins = np.flatnonzero(np.diff(document_of_window, prepend=document_of_window[:1] - 1))
    if len(begins) < FEW_DOCUMENTS:
        return begins
    return np.unique(np.linspace(0, windows, min(BLOCKS, windows), endpoint=False).astype(np.int64))


def read_sequences(results: Path, run: str, columns: list[str]) -> pd.DataFrame:
    path = results / "evaluation" / run / "sequences.parquet"
    try:
        frame = pd.read_parquet(path, columns=["split", *columns])
    except (OSError, ValueError) as error:
        raise ResultsError(f"cannot read losses per sequence: {error}", str(path), "evaluate the run again") from error
    return frame[frame["split"] == "test"].sort_values("window").reset_index(drop=True)


# ---------------------------------------------------------------------------------------------------------- seeds
def _noises(
    table: pd.DataFrame, frame: pd.DataFrame, cell_of_run: NDArray[np.int64], log_loss_r: Array, average: Array
) -> dict[str, Noise]:
    seeds = frame["seeds"].to_numpy()[cell_of_run]
    with np.errstate(divide="ignore", invalid="ignore"):
        inflated = (log_loss_r - (average @ log_loss_r)[cell_of_run]) * np.sqrt(seeds / (seeds - 1))
    repeated, variant_of = seeds > 1, table["variant"].to_numpy()
    everyone = _pooled(inflated[repeated], len(set(cell_of_run[repeated])), "seeds of all variants")
    found = {}
    for variant in dict.fromkeys(variant_of):
        own = repeated & (variant_of == variant)
        noise = _pooled(inflated[own], len(set(cell_of_run[own])), "seeds of this variant")
        if noise.freedom < MIN_FREEDOM:
            noise = everyone
        if noise.freedom < MIN_FREEDOM:
            noise = _scatter(frame[frame["variant"] == variant], average @ log_loss_r)
        found[str(variant)] = noise
    return found


def _pooled(residuals: Array, cells: int, source: str) -> Noise:
    freedom = len(residuals) - cells
    sigma = float(np.sqrt(np.mean(residuals**2))) if freedom > 0 else 0.0
    return Noise(sigma, freedom, source, residuals)


def _scatter(cells: pd.DataFrame, point: Array) -> Noise:
    """With one seed per cell, deviations from the power law count as noise, if there are enough sizes."""
    main = cells[cells["multiple"] == cells["multiple"].mode().iloc[0]]
    y, n = point[main.index], main["n"].to_numpy(float)
    freedom = len(n) - 2
    if freedom >= MIN_FREEDOM - 1 and main["n"].nunique() > 1:
        residual = (y - fit_power(n, y).log_loss(n)[0]) * np.sqrt(len(n) / freedom)
        sigma = float(np.sqrt(np.mean(residual**2)))
        source = "scatter about the power law (one seed)"
        return Noise(sigma, freedom, source, residual, tuple(main.index))
    sigma = ASSUMED_NATS / float(np.exp(y.mean()))
    return Noise(sigma, 1000, f"assumed {ASSUMED_NATS} nats (one seed, few sizes)", np.array([-sigma, sigma]))


def _seed_draws(noise: Noise, draws: int, runs: int, rng: np.random.Generator) -> Array:
    picked = rng.choice(noise.residuals, (draws, runs)) * rng.choice([-1.0, 1.0], (draws, runs))
    return picked * _widening(noise, draws, rng)


def _scatter_draws(noise: Noise, n: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws [b, sizes] for a variant whose noise was estimated from the scatter of these sizes about their power law.

    Errors along the law do not show in that scatter, so they are drawn from a normal distribution and widened. Of the
    errors off the law the length of the vector is known, σ√f, and only the direction is drawn. Widening them too would
    count the error of one size twice: the interval of a multiplier, which depends on few sizes, then covered the truth
    in all of 200 simulated experiments (docs/coverage.md).
    """
    z = rng.standard_normal((draws, len(n)))
    along = fit_power(n, z).log_loss(n)
    off = z - along
    off *= np.sqrt(noise.freedom) / np.linalg.norm(off, axis=1, keepdims=True)
    return noise.sigma * (along * _widening(noise, draws, rng) + off)


def _widening(noise: Noise, draws: int, rng: np.random.Generator) -> Array:
    """Factor by which the true spread may exceed the estimate, [b, 1]."""
    return np.sqrt(noise.freedom / rng.chisquare(noise.freedom, draws))[:, None]
