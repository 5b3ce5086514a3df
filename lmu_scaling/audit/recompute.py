"""Recomputed results, by other code than the original: losses from weights and tokens, power laws from the table.

Losses use the model's parallel form and a plain log-softmax in float64. A power law is a least-squares line through
all runs of a variant, without the bootstrap.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

from lmu_scaling.audit.checksums import shards
from lmu_scaling.audit.consistency import read_csv, read_parquet, run_names
from lmu_scaling.audit.results_folder import Finding, ResultsFolder
from lmu_scaling.spec import MAIN, RunSpec

SEQUENCES_PER_RUN = 4
LOSS_TOLERANCE = {"float32": 2e-4, "bfloat16": 5e-2}  # difference between devices, by precision [nats]
EXPONENT_TOLERANCE = 1e-6


def losses(folder: ResultsFolder, sample: int = 1) -> Iterator[Finding]:
    """Recompute the loss of a few test sequences of the `sample` smallest evaluated runs."""
    runs = [run for run in run_names(folder) if f"evaluation/{run}/sequences.parquet" in folder.files]
    weights = {run: f"training/{run}/weights.safetensors" for run in runs}
    complete = [run for run in runs if weights[run] in folder.files and _has_tokens(folder)]
    if not complete or importlib.util.find_spec("torch") is None:
        reason = "torch is not installed" if complete else "weights or token shards are not in this folder"
        yield Finding("losses", "evaluation", f"no loss was recomputed: {reason}", "unseen")
        return
    complete.sort(key=lambda run: (folder.files[weights[run]].stat().st_size, run))
    for run in complete[:sample]:
        yield from _one_run(folder, run)


def _has_tokens(folder: ResultsFolder) -> bool:
    found = shards(folder)
    return bool(found) and all(name in folder.files for name, shard in found.items() if shard["split"] == "test")


def _one_run(folder: ResultsFolder, run: str) -> Iterator[Finding]:
    name = f"evaluation/{run}/sequences.parquet"
    rows = [row for row in read_parquet(folder.files[name]) if row["split"] == "test"]
    chosen = [rows[i * len(rows) // SEQUENCES_PER_RUN] for i in range(min(SEQUENCES_PER_RUN, len(rows)))]
    try:
        recomputed = _losses(folder, run, [row["window"] for row in chosen])
    except Exception as error:  # damaged weights or tokens can raise anything
        yield Finding("losses", f"evaluation/{run}", f"its loss cannot be recomputed: {type(error).__name__}: {error}")
        return
    result = folder.json(f"training/{run}/result.json") or {}
    precision = result.get("machine", {}).get("precision", "float32")
    for row, loss in zip(chosen, recomputed, strict=True):
        if not math.isclose(loss, row["loss"], abs_tol=LOSS_TOLERANCE.get(precision, 2e-4)):
            what = f"window {row['window']} has loss {row['loss']:.6f}; recomputed from the weights: {loss:.6f}"
            yield Finding("losses", name, what)


def _losses(folder: ResultsFolder, run: str, windows: list[int]) -> list[float]:
    import numpy as np
    import torch
    from safetensors.torch import load_file

    from lmu_scaling.models.network import build
    from lmu_scaling.tokens.store import TokenStore

    spec = RunSpec.from_dict(folder.json(f"training/{run}/spec.json") or {}).model
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


def power_laws(folder: ResultsFolder) -> Iterator[Finding]:
    """Refit ln L = α (ln N_c - ln N) of every variant to the table of runs."""
    fits = folder.json("analysis/fits.json")
    if not fits or "analysis/runs.csv" not in folder.files:
        yield Finding(
            "laws", "analysis/fits.json", "no power law was refitted: fits.json or runs.csv is missing", "unseen"
        )
        return
    rows = [row for row in read_csv(folder.files["analysis/runs.csv"]) if not row.get("excluded")]
    for entry in fits["power"]:
        if entry.get("alpha") is None:
            continue
        mine = [r for r in rows if r["variant"] == entry["variant"] and float(r["multiple"]) == entry["multiple"]]
        mine = [r for r in mine if (r.get("setting") or MAIN) == entry.get("setting", MAIN)]
        alpha = refit(mine)
        if not math.isclose(alpha, entry["alpha"], rel_tol=EXPONENT_TOLERANCE, abs_tol=EXPONENT_TOLERANCE):
            what = f"alpha of {entry['variant']} x{entry['multiple']:g} is {entry['alpha']!r}; refitted: {alpha!r}"
            yield Finding("laws", "analysis/fits.json", what)


def refit(rows: list[dict[str, Any]]) -> float:
    """Negative slope of the least-squares line through (ln N, ln L)."""
    x = [math.log(float(row["n_exact"])) for row in rows]
    y = [math.log(float(row["test_loss"])) for row in rows]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - x_mean) ** 2 for a in x)
    return -sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread if spread else math.nan
