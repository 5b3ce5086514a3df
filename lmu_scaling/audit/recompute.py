"""A sample end to end, by other means than the originals: a loss from weights and tokens, laws from the table.

The evaluation goes through the model's parallel form and a plain log-softmax in float64; the law is a straight line
through all runs of a variant, without the bootstrap's machinery.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

from lmu_scaling.audit.folder import Finding, Folder
from lmu_scaling.audit.meaning import read_csv, read_parquet, run_names

SEQUENCES = 4
NATS = {
    "float32": 2e-4,
    "bfloat16": 5e-2,
}  # how far float32 or bfloat16 arithmetic may differ from one device to another
LAW = 1e-6


def evaluation(folder: Folder, sample: int = 1) -> Iterator[Finding]:
    """Recompute the loss of a few test sequences of the `sample` smallest evaluated runs."""
    runs = [run for run in run_names(folder) if f"evaluation/{run}/sequences.parquet" in folder.files]
    weights = {run: f"training/{run}/weights.safetensors" for run in runs}
    whole = [run for run in runs if weights[run] in folder.files and _has_tokens(folder)]
    if not whole or importlib.util.find_spec("torch") is None:
        reason = "torch is not installed" if whole else "weights or token shards are not in this folder"
        yield Finding("recomputed", "evaluation", f"no loss was recomputed: {reason}", "note")
        return
    whole.sort(key=lambda run: (folder.files[weights[run]].stat().st_size, run))
    for run in whole[:sample]:
        yield from _one_run(folder, run)


def _has_tokens(folder: Folder) -> bool:
    from lmu_scaling.audit.checksums import shards

    return bool(shards(folder)) and all(
        name in folder.files for name, s in shards(folder).items() if s["split"] == "test"
    )


def _one_run(folder: Folder, run: str) -> Iterator[Finding]:
    name = f"evaluation/{run}/sequences.parquet"
    rows = [row for row in read_parquet(folder.files[name]) if row["split"] == "test"]
    chosen = [rows[i * len(rows) // SEQUENCES] for i in range(min(SEQUENCES, len(rows)))]
    try:
        losses = _losses(folder, run, [row["window"] for row in chosen])
    except Exception as error:  # whatever fails here, the evidence does not support the numbers
        yield Finding("recomputed", f"evaluation/{run}", f"cannot be recomputed: {type(error).__name__}: {error}")
        return
    result = folder.json(f"training/{run}/result.json") or {}
    precision = result.get("machine", result).get("precision", "float32")
    for row, loss in zip(chosen, losses, strict=True):
        if not math.isclose(loss, row["loss"], abs_tol=NATS.get(precision, 2e-4)):
            what = f"window {row['window']} has loss {row['loss']:.6f}; from its weights it is {loss:.6f}"
            yield Finding("recomputed", name, what)


def _losses(folder: Folder, run: str, windows: list[int]) -> list[float]:
    import numpy as np
    import torch
    from safetensors.torch import load_file

    from lmu_scaling.models import ModelSpec
    from lmu_scaling.models.network import build
    from lmu_scaling.tokens.store import TokenStore

    spec = ModelSpec.from_dict((folder.json(f"training/{run}/spec.json") or {})["model"])
    model = build(spec, compile="off")
    model.load_state_dict(load_file(folder.files[f"training/{run}/weights.safetensors"]), strict=False)
    model.eval()
    store = TokenStore(folder.results / "tokens", "test")
    found = []
    with torch.no_grad():
        for window in windows:
            ids = torch.from_numpy(store.gather(np.array([window]), spec.context))
            scores = torch.log_softmax(model(ids[:, :-1]).double(), dim=-1)
            found.append(-scores.gather(2, ids[:, 1:, None]).mean().item())
    return found


def law(folder: Folder) -> Iterator[Finding]:
    """Refit ln L = α (ln N_c - ln N) of every variant from the table of runs."""
    fits = folder.json("analysis/fits.json")
    if not fits or "analysis/runs.csv" not in folder.files:
        yield Finding("recomputed", "analysis/fits.json", "no law was refitted: fits or table are missing", "note")
        return
    rows = [row for row in read_csv(folder.files["analysis/runs.csv"]) if not row.get("excluded")]
    for entry in fits["power"]:
        if entry.get("alpha") is None:
            continue
        mine = [r for r in rows if r["variant"] == entry["variant"] and float(r["multiple"]) == entry["multiple"]]
        alpha = refit(mine)
        if not math.isclose(alpha, entry["alpha"], rel_tol=LAW, abs_tol=LAW):
            what = f"alpha of {entry['variant']} x{entry['multiple']:g} is {entry['alpha']!r}; the table: {alpha!r}"
            yield Finding("recomputed", "analysis/fits.json", what)


def refit(rows: list[dict[str, Any]]) -> float:
    """The exponent of the line through (ln N, ln L)."""
    x = [math.log(float(row["n_exact"])) for row in rows]
    y = [math.log(float(row["test_loss"])) for row in rows]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - x_mean) ** 2 for a in x)
    return -sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread if spread else math.nan
