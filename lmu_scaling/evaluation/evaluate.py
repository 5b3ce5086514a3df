"""Evaluate a trained model on validation and test: cross-entropy, its errors, per-token loss (section 5, figures 3, 4).

Each target is predicted once, from its window only. The tokens behind the last whole window form a shorter one, so that
nothing of a split is left out. The model runs in float32; sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

from lmu_scaling.devices import choose
from lmu_scaling.errors import ResultsError
from lmu_scaling.evaluation.losses import token_losses, windows_per_batch
from lmu_scaling.evaluation.sums import SplitSums
from lmu_scaling.jobs import Input, Output, job
from lmu_scaling.models import ModelSpec
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.runtime import Progress, atomic_write, write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.store import TokenStore

SPLITS = ("validation", "test")
CPU = torch.device("cpu")
Indices = NDArray[np.int64]


@job
def evaluate(
    spec: Input,
    weights: Input,
    tokens: Input,
    max_sequences: int | None,
    summary: Output,
    per_token: Output,
    sequences: Output,
    device: str = "auto",
    threads: int = 1,
) -> dict[str, Any]:
    """Cross-entropy and per-token loss of one run, on validation and test.

    Args:
        spec: spec.json of the run
        weights: weights.safetensors
        tokens: index of the token shards
        max_sequences: sequences evaluated per split; null means all
        summary: summary.json
        per_token: per_token.parquet
        sequences: sequences.parquet
        device: auto, cpu or cuda
        threads: CPU threads
    """
    torch.set_num_threads(threads)
    where = choose(device)
    run_spec = RunSpec.read(spec)
    model = load_model(run_spec.model, weights, where)
    found: dict[str, Any] = {}
    curves, rows, digest = [], [], None
    for split in SPLITS:
        store = TokenStore(tokens.parent, split)
        digest = store.digest
        sums = evaluate_split(model, store, max_sequences)
        unigram = store.index["splits"][split].get("unigram_loss")
        found[split] = sums.summary(len(store) / max(store.bytes, 1)) | {"unigram_loss": unigram}
        curves.append(_labelled(sums.per_token(), split))
        rows.append(_labelled(sums.sequences(), split))
    for path, frames in ((per_token, curves), (sequences, rows)):
        with atomic_write(path, "wb") as file:
            pd.concat(frames, ignore_index=True).to_parquet(file, index=False)
    write_json(summary, {"spec_hash": run_spec.hash, "tokens_digest": digest, "splits": _without_nan(found)})
    return {split: found[split]["loss"] for split in SPLITS} | {"device": str(where)}


def load_model(spec: ModelSpec, weights: Path, device: torch.device = CPU) -> LanguageModel:
    """The network with its trained weights; a file of another model is refused."""
    model = build(spec, seed=0, compile="auto" if device.type == "cpu" else "off")
    try:
        model.load_state_dict(load_file(weights))
    except (OSError, SafetensorError) as error:
        raise ResultsError(
            f"cannot read the weights: {error}",
            str(weights),
            f"train the run again: snakemake --cores all --forcerun {weights}",
        ) from error
    except RuntimeError as error:
        raise ResultsError(
            f"the weights do not belong to this model: {str(error).splitlines()[-1].strip()}",
            str(weights),
            f"train the run again: snakemake --cores all --forcerun {weights}",
        ) from error
    return model.to(device).eval()


@torch.inference_mode()
def evaluate_split(
    model: LanguageModel,
    store: TokenStore,
    max_sequences: int | None,
    batch: int | None = None,
) -> SplitSums:
    """Losses of all (or of evenly spaced) windows of a split."""
    if store.vocab != model.spec.vocab:
        raise ResultsError(
            f"the model knows {model.spec.vocab} tokens, but the split was cut into {store.vocab}",
            str(store.directory),
            "evaluate a run on the tokens of its own experiment",
        )
    n, device = model.spec.context, model.head_weight.device
    bounds = store.document_bounds()
    sums = SplitSums(n, len(bounds))
    batches = list(plan_batches(len(store), n, max_sequences, batch or windows_per_batch(model.spec, device)))
    if not batches:
        raise ResultsError(
            f"the split {store.split!r} has {len(store)} tokens: nothing to predict",
            str(store.directory),
            "use a larger corpus or other shares of the split",
        )
    with Progress(sum(len(i) * m for i, m in batches), f"evaluate {store.split}", "token") as bar:
        for indices, length in batches:
            start = indices[:, None] * n
            place = start + np.arange(length + 1)
            ids = np.stack([store.slice(int(row[0]), int(row[-1]) + 1) for row in place]).astype(np.int64)
            loss = token_losses(model, torch.from_numpy(ids).to(device)).cpu().numpy().astype(np.float64)
            document = np.searchsorted(bounds, place[:, 1:], side="right") - 1
            sums.add(indices, loss, document, place[:, 1:] - bounds[document])
            bar.update(loss.size)
    return sums


def plan_batches(tokens: int, n: int, max_sequences: int | None, batch: int) -> Iterator[tuple[Indices, int]]:
    """Windows in batches, with the number of targets in each; the last one may be shorter than n."""
    whole, rest = divmod(max(tokens - 1, 0), n)
    windows = np.arange(whole)
    if max_sequences is not None and max_sequences < whole + (rest > 0):
        windows, rest = np.linspace(0, whole, min(max_sequences, whole), endpoint=False).astype(np.int64), 0
    for start in range(0, len(windows), batch):
        yield windows[start : start + batch], n
    if rest:
        yield np.array([whole]), rest


def _labelled(frame: pd.DataFrame, split: str) -> pd.DataFrame:
    frame.insert(0, "split", split)
    return frame


def _without_nan(value: Any) -> Any:
    """A model that diverged has no loss: null, which the table of runs turns into an exclusion."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
