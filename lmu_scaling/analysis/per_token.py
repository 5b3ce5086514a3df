"""Loss by position in the context: binned curves, fits E + A·T^-a, and a plateau statistic (section 5, figure 4).

One curve per cell (variant x size x budget), averaged over its seeds. On the axis `window` intervals come from
resampling test sequences (with all their bins, as losses within a sequence are correlated) and from the spread between
seeds, which differ in level and in shape: whole curves are resampled, as deviations from the mean of their cell. On the
axis `document` single sequences are not known: the errors of the positions in a bin are averaged, as if the positions
were fully correlated, which is conservative.

The plateau statistic is the mean loss at positions (64, 128] minus that at (n/2, n]: at the paper's n = 1024 the gain
from 64–128 tokens of context to 512–1024. `early` and `late` give the positions that are compared. `approach` is the
gain before that, from the first 16 positions to (64, 128]: a model that learned nothing from context has none.
`excess` is the plateau statistic minus that of our GPT-2-style transformer (`control`) at the same size and budget,
`excess_modern` and `excess_rotary` minus that of the other transformers. All curves are resampled over the same
documents, so what is hard in the text cancels in the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.analysis.bootstrap import block_starts, few_blocks, interval, read_sequences, sum_intervals
from lmu_scaling.analysis.comparisons import PAPER_BASELINE
from lmu_scaling.analysis.laws import fit_sum, sum_report
from lmu_scaling.analysis.table import MAIN, write_csv
from lmu_scaling.errors import ResultsError
from lmu_scaling.evaluation.positions import FINE, bin_centres, bin_edges, bins_within, overlap
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.runtime import atomic_write
from lmu_scaling.spec import Run, parse_run

Array = NDArray[np.float64]
Cell = tuple[str, str, float]  # variant, size, budget
EXCESS = {  # the column of each control
    PAPER_BASELINE: "excess",
    "transformer_modern": "excess_modern",
    "transformer_rotary": "excess_rotary",
}
FIRST_FITTED = 2  # the first token has hardly any context
FIRST = (0, 16)
EARLY = (64, 128)
SPLIT = "test"
AXES = ("window", "document")


@dataclass(frozen=True)
class Curve:
    """Binned curve of one cell: estimates [bins] and draws [b, bins]."""

    edges: NDArray[np.int64]
    mean: Array
    drawn: Array
    count: NDArray[np.int64]

    def gain(self, early: tuple[int, int], late: tuple[int, int]) -> tuple[float, Array] | None:
        """Mean loss at positions (early] minus that at (late]: estimate and draws; None if a bin is missing."""
        masks = [bins_within(self.edges, *ends) for ends in (early, late)]
        if not all(mask.any() for mask in masks):
            return None
        weights = np.zeros(len(self.mean))
        for mask, sign in zip(masks, (1, -1), strict=True):
            weights[mask] += sign * self.count[mask] / self.count[mask].sum()
        return float(self.mean @ weights), self.drawn @ weights

    def plateau(self) -> tuple[float, Array] | None:
        n = int(self.edges[-1])
        return self.gain(EARLY, (n // 2, n)) if n >= 2 * EARLY[1] else None


@job
def per_token(
    results: Folder,
    runs: list[str],
    draws: int,
    confidence: float,
    seed: int,
    bins_per_octave: int,
    curves: Output,
    fits: Output,
) -> dict[str, Any]:
    """Per-token loss by position on the test split: binned curves with intervals, and their fits.

    Args:
        results: folder results/<experiment>
        runs: names of the runs
        draws: bootstrap draws
        confidence: of the intervals
        seed: of the bootstrap
        bins_per_octave: logarithmic bins of positions
        curves: per_token.parquet
        fits: per_token_fits.csv
    """
    cells: dict[Cell, list[Run]] = {}
    for run in map(parse_run, runs):
        if getattr(run, "setting", MAIN) == MAIN:
            cells.setdefault((run.variant, run.size, run.multiple), []).append(run)
    frames, rows = [], []
    for axis in AXES:
        found = axis_curves(results, cells, axis, bins_per_octave, (draws, seed))
        for cell, curve in found.items():
            keys = dict(zip(("variant", "size", "multiple"), cell, strict=True))
            frames.append(_frame(curve, keys | {"split": SPLIT, "axis": axis}, confidence))
            row = keys | {"axis": axis, "seeds": len(cells[cell])} | describe(curve, confidence)
            rows.append(row | _against_controls(found, cell, confidence))
    if not frames:
        raise ResultsError("no run has a usable per-token loss", str(results), "see which runs diverged")
    with atomic_write(curves, "wb") as binary:
        pd.concat(frames, ignore_index=True).to_parquet(binary, index=False)
    write_csv(fits, pd.DataFrame(rows))
    return {"curves": len(rows)}


# --------------------------------------------------------------------------------------------------------- curves
def axis_curves(
    results: Path, cells: dict[Cell, list[Run]], axis: str, per_octave: int, bootstrap: tuple[int, int]
) -> dict[Cell, Curve]:
    """The curve of every cell; draws of all cells resample the same blocks of text."""
    names = {cell: [run.name for run in members] for cell, members in cells.items()}
    edges = common_edges(results, [name for members in names.values() for name in members], axis, per_octave)
    spread = seed_spread(results, cells, axis, edges)
    found = {cell: _curve(results, names[cell], axis, edges, bootstrap, spread[cell[0]]) for cell in cells}
    return {cell: curve for cell, curve in found.items() if curve is not None}


def common_edges(results: Path, runs: list[str], axis: str, per_octave: int) -> NDArray[np.int64]:
    """Bins that hold the positions of all runs."""
    frames = [frame for run in runs if (frame := _raw(results, run, axis)) is not None]
    return bin_edges(max((int(frame["position"].max()) for frame in frames), default=1), per_octave)


def _curve(
    results: Path, runs: list[str], axis: str, edges: NDArray[np.int64], bootstrap: tuple[int, int], spread: Spread
) -> Curve | None:
    raw = {run: _raw(results, run, axis) for run in runs}
    runs = [run for run in runs if raw[run] is not None]
    frames = [frame for frame in raw.values() if frame is not None]
    if not frames:
        return None
    binned = np.array([_bin(frame, edges, "mean") for frame in frames])  # [seeds, bins]
    errors = np.array([_bin(frame, edges, "se") for frame in frames])
    count = np.array([_counts(frame, edges) for frame in frames]).sum(axis=0)
    draws, seed = bootstrap
    rng = np.random.default_rng([seed, *"".join(runs).encode()])  # seeds of different cells are independent
    if axis == "window":
        shift = _resampled(results, runs, edges, draws, np.random.default_rng(seed))  # the text is the same
    else:
        shift = rng.standard_normal((draws, len(edges) - 1)) * _typical(errors)
    shift = shift + spread.draws(len(frames), draws, rng)
    mean = binned.mean(axis=0)
    keep = np.isfinite(mean) & np.isfinite(shift).all(axis=0)
    if keep.sum() < 2:
        return None
    last = int(np.flatnonzero(keep)[-1]) + 1  # only bins at the end may be missing: a gap inside would shift bins
    if not keep[:last].all():
        return None
    return Curve(edges[: last + 1], mean[:last], (mean + shift)[:, :last], count[:last])


def _raw(results: Path, run: str, axis: str) -> pd.DataFrame | None:
    path = results / "evaluation" / run / "per_token.parquet"
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ResultsError(f"cannot read the per-token loss: {error}", str(path), "evaluate the run again") from error
    frame = frame[(frame["split"] == SPLIT) & (frame["axis"] == axis) & (frame["count"] > 0)]
    return frame if len(frame) and np.isfinite(frame["mean"]).all() else None


def _bin(frame: pd.DataFrame, edges: NDArray[np.int64], column: str) -> Array:
    """Token-weighted mean of a column in each bin."""
    index = np.searchsorted(edges[1:], frame["position"])
    weight, bins = frame["count"].to_numpy(float), len(edges) - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.bincount(index, weight * frame[column].to_numpy(float), bins)
        return total / np.bincount(index, weight, bins)


def _typical(errors: Array) -> Array:
    """Mean over seeds; NaN where a bin has a single token, whose error is unknown."""
    known = np.isfinite(errors)
    with np.errstate(invalid="ignore"):
        return np.where(known, errors, 0.0).sum(axis=0) / np.where(known.any(axis=0), known.sum(axis=0), np.nan)


def _counts(frame: pd.DataFrame, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    index = np.searchsorted(edges[1:], frame["position"])
    return np.bincount(index, frame["count"], len(edges) - 1).astype(np.int64)


def _resampled(results: Path, runs: list[str], edges: NDArray[np.int64], draws: int, rng: np.random.Generator) -> Array:
    """Change of each bin's mean when contiguous blocks of test sequences are resampled, seeds averaged."""
    frames = [read_sequences(results, run, ["window", "document", "bins"]) for run in runs]
    per_run = [np.stack(frame["bins"].to_list()) for frame in frames]
    if len({values.shape for values in per_run}) > 1:
        raise ResultsError(
            f"{' and '.join(runs)} were evaluated on different test sequences",
            str(results / "evaluation"),
            "evaluate all runs with the same settings",
        )
    return resample(np.mean(per_run, axis=0), frames[0]["document"].to_numpy(), edges, draws, rng)


def resample(
    values: Array, document: NDArray[np.int64], edges: NDArray[np.int64], draws: int, rng: np.random.Generator
) -> Array:
    """The same from the losses [sequences, fine bins] and the document of each sequence."""
    fine = bin_edges(int(edges[-1]), FINE)
    values, starts = values[:, : len(fine) - 1], block_starts(document)
    total = np.add.reduceat(np.nan_to_num(values), starts, axis=0)
    number = np.add.reduceat(np.isfinite(values).astype(float), starts, axis=0)
    weights = rng.multinomial(len(starts), np.full(len(starts), 1 / len(starts)), size=draws).astype(float)
    with np.errstate(invalid="ignore"):  # a draw without a window that is long enough
        shift = (weights @ total) / (weights @ number) - total.sum(axis=0) / number.sum(axis=0)
    shift = np.nan_to_num(shift) * few_blocks(len(starts), draws, rng)
    shared = overlap(edges, fine)
    return shift @ (shared / shared.sum(axis=1, keepdims=True)).T


@dataclass(frozen=True)
class Spread:
    """Deviations of runs from the mean curve of their cell, [runs, bins] in nats, pooled over a variant's cells."""

    residuals: Array
    freedom: int

    def draws(self, seeds: int, draws: int, rng: np.random.Generator) -> Array:
        """Mean of as many deviations as there are seeds, with random signs, widened for few seeds, [draws, bins]."""
        if self.freedom < 1:
            return np.zeros((draws, 1))
        sign, picked = rng.choice([-1.0, 1.0], (draws, seeds)), rng.integers(len(self.residuals), size=(draws, seeds))
        widening = np.sqrt(self.freedom / rng.chisquare(self.freedom, (draws, 1)))
        return np.einsum("bs,bsk->bk", sign, self.residuals[picked]) / seeds * widening


def seed_spread(results: Path, cells: dict[Cell, list[Run]], axis: str, edges: NDArray[np.int64]) -> dict[str, Spread]:
    found: dict[str, list[Array]] = {variant: [] for variant, _, _ in cells}
    freedom = dict.fromkeys(found, 0)
    for (variant, _, _), members in cells.items():
        frames = [frame for run in members if (frame := _raw(results, run.name, axis)) is not None]
        if len(frames) > 1:
            curves = np.array([_bin(frame, edges, "mean") for frame in frames])
            inflation = np.sqrt(len(curves) / (len(curves) - 1))  # seeds lie closer to their own mean
            found[variant] += list((curves - curves.mean(axis=0)) * inflation)
            freedom[variant] += len(curves) - 1
    return {variant: Spread(np.array(curves), freedom[variant]) for variant, curves in found.items()}


def _frame(curve: Curve, keys: dict[str, Any], confidence: float) -> pd.DataFrame:
    low, high = interval(curve.drawn, confidence)
    return pd.DataFrame(
        keys
        | {
            "position": bin_centres(curve.edges),
            "first": curve.edges[:-1] + 1,
            "last": curve.edges[1:],
            "mean": curve.mean,
            "low": low,
            "high": high,
            "se": curve.drawn.std(axis=0),
            "count": curve.count,
        }
    )


# ----------------------------------------------------------------------------------------------------------- fits
def describe(curve: Curve, confidence: float) -> dict[str, Any]:
    """E + A T^-a on T >= 2, and the gains along the context, each with its interval."""
    n = int(curve.edges[-1])
    found: dict[str, Any] = {"n": n} | _fit(curve, confidence)
    found |= {"early": f"{EARLY[0] + 1}–{EARLY[1]}", "late": f"{n // 2 + 1}–{n}"}
    found |= _interval("plateau", curve.plateau(), confidence)
    return found | _interval("approach", curve.gain(FIRST, EARLY), confidence)


def _against_controls(curves: dict[Cell, Curve], cell: Cell, confidence: float) -> dict[str, Any]:
    """The gain minus that of each control of the same size and budget."""
    found: dict[str, Any] = {"control": PAPER_BASELINE if (PAPER_BASELINE, *cell[1:]) in curves else ""}
    for baseline, column in EXCESS.items():
        control = curves.get((baseline, *cell[1:]))
        ours, theirs = curves[cell].plateau(), control.plateau() if control else None
        both = (ours[0] - theirs[0], ours[1] - theirs[1]) if ours and theirs else None
        found |= _interval(column, both, confidence)
    return found


def _interval(name: str, gain: tuple[float, Array] | None, confidence: float) -> dict[str, float]:
    value, low, high = (np.nan,) * 3 if gain is None else (gain[0], *interval(gain[1], confidence))
    return {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}


def _fit(curve: Curve, confidence: float) -> dict[str, Any]:
    use = curve.edges[1:] >= FIRST_FITTED
    if use.sum() < 4:
        return {"fitted": False}
    centres = bin_centres(curve.edges)[use]
    point, report = sum_report([centres], curve.mean[use])
    drawn = fit_sum([centres], curve.drawn[:, use])
    found: dict[str, Any] = {"fitted": True} | sum_intervals(point, drawn, confidence, "a")
    found["identified"] = bool(found["E_low"] > 0 and found["A_low"] > 0)
    return found | {key: report[key] for key in ("r2", "rmse_relative", "converged", "on_bound")}
