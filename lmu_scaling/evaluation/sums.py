"""Sums over losses that are cheap to keep and enough for every mean and standard error of the evaluation. No torch.

Position t on the axis `window` is the number of tokens of the window that the model has seen. On the axis `document`
it is the number of preceding tokens of the same document, counted only where all of them are in the window; so both
say how much context there was, the second without foreign documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmu_scaling.evaluation.positions import FINE, bin_edges, bin_of_position

Array = NDArray[np.float64]


class PositionSums:
    """Σ, Σ² and count of losses by position 1 … n, in float64."""

    def __init__(self, n: int) -> None:
        self.total, self.squares, self.count = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)

    def add(self, position: NDArray[np.int64], loss: Array) -> None:
        n, index = len(self.total), position - 1
        self.total += np.bincount(index, loss, n)
        self.squares += np.bincount(index, loss**2, n)
        self.count += np.bincount(index, minlength=n)

    def frame(self) -> pd.DataFrame:
        seen = np.flatnonzero(self.count)
        count = self.count[seen]
        mean = self.total[seen] / count
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = (self.squares[seen] - count * mean**2) / (count - 1)
        se = np.where(count > 1, np.sqrt(np.maximum(variance, 0) / count), np.nan)
        return pd.DataFrame({"position": seen + 1, "mean": mean, "se": se, "count": count})


class SplitSums:
    """Everything the evaluation of one split keeps: by position, by sequence, by document."""

    def __init__(self, n: int, documents: int) -> None:
        self.n = n
        self.axes = {"window": PositionSums(n), "document": PositionSums(n)}
        self.document_total, self.document_tokens = np.zeros(documents), np.zeros(documents, np.int64)
        self._bin_of = bin_of_position(n, FINE)
        self._bins = len(bin_edges(n, FINE)) - 1
        self._sequences: list[pd.DataFrame] = []

    def add(
        self,
        windows: NDArray[np.int64],
        loss_bm: Array,
        document_bm: NDArray[np.int64],
        preceding_bm: NDArray[np.int64],
    ) -> None:
        """Losses of whole or cut windows, the document of each target and the tokens of it that precede the target."""
        b, m = loss_bm.shape
        position_bm = np.broadcast_to(np.arange(1, m + 1), (b, m))
        self.axes["window"].add(position_bm.ravel(), loss_bm.ravel())
        visible = (preceding_bm >= 1) & (preceding_bm <= position_bm)
        self.axes["document"].add(preceding_bm[visible], loss_bm[visible])
        self.document_total += np.bincount(document_bm.ravel(), loss_bm.ravel(), len(self.document_total))
        self.document_tokens += np.bincount(document_bm.ravel(), minlength=len(self.document_tokens))
        self._sequences.append(
            pd.DataFrame(
                {
                    "window": windows,
                    "document": document_bm[:, document_bm.shape[1] // 2],  # of the middle target
                    "loss": loss_bm.mean(axis=1),
                    "tokens": m,
                    "bins": list(self._binned(loss_bm)),
                }
            )
        )

    def _binned(self, loss_bm: Array) -> Array:
        """Mean loss of each sequence in each logarithmic bin of positions, [b, bins]; nan where a cut window ends."""
        which = self._bin_of[: loss_bm.shape[1]]
        member = np.zeros((loss_bm.shape[1], self._bins))
        member[np.arange(len(which)), which] = 1
        counts = member.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(counts > 0, loss_bm @ member / counts, np.nan)

    def sequences(self) -> pd.DataFrame:
        return pd.concat(self._sequences, ignore_index=True).sort_values("window").reset_index(drop=True)

    def per_token(self) -> pd.DataFrame:
        frames = []
        for name, sums in self.axes.items():
            frame = sums.frame()
            frame.insert(0, "axis", name)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def summary(self, tokens_per_byte: float) -> dict[str, Any]:
        rows = self.sequences()
        totals, tokens = (rows["loss"] * rows["tokens"]).to_numpy(float), rows["tokens"].to_numpy(float)
        read = self.document_tokens > 0
        loss = float(totals.sum() / tokens.sum())
        return {
            "loss": loss,
            "se_sequences": ratio_se(totals, tokens),
            "se_documents": ratio_se(self.document_total[read], self.document_tokens[read].astype(float)),
            "bits_per_byte": loss / float(np.log(2)) * tokens_per_byte,
            "tokens": int(tokens.sum()),
            "sequences": len(rows),
            "documents": int(read.sum()),
        }


def ratio_se(totals: Array, tokens: Array) -> float | None:
    """Standard error of Σ totals / Σ tokens over clusters (sequences or documents) of unequal length."""
    clusters = len(tokens)
    if clusters < 2:
        return None
    residual = totals - totals.sum() / tokens.sum() * tokens
    return float(np.sqrt(clusters / (clusters - 1) * (residual**2).sum()) / tokens.sum())
