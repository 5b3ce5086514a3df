"""Parameters and FLOPs of every model, by formula and as measured on the built network (Table 2, appendix A.1).

`table2.csv` holds each operation once per variant and size. `counts.csv` holds one row per model, and for models with a
memory how far the reduced-order form is from the full-order one, in float64.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lmu_scaling.analysis.literal import Measured, measure
from lmu_scaling.counting import count, lmu_flops, lmu_qkv_flops
from lmu_scaling.models import ModelSpec, architecture
from lmu_scaling.models.layers import LMU
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.models.sizes import PARAMETERS_PER_D2
from lmu_scaling.runtime import atomic_write, progress

OUTSIDE_N = ("head_weight", "positions")


def counts(specs: str, out: Path, table2: Path) -> dict[str, Any]:
    """`specs`: a JSON list of {"variant", "size", "model"}."""
    models, operations = [], []
    for entry in progress(json.loads(specs), "count", unit="model"):
        spec = ModelSpec.from_dict(entry["model"])
        network = build(spec, seed=0, compile="off").double().eval()
        keys = {"variant": entry["variant"], "size": entry["size"]}
        measured = measure_layers(network)
        models.append(keys | model_row(spec, network))
        operations += [keys | row for row in table2_rows(spec, measured)]
    for path, rows in ((out, models), (table2, operations)):
        with atomic_write(path) as file:
            pd.DataFrame(rows).to_csv(file, index=False)
    return {"models": len(models)}


def model_row(spec: ModelSpec, network: LanguageModel) -> dict[str, Any]:
    counted = count(spec)
    trainable = {name: p.numel() for name, p in network.named_parameters() if p.requires_grad}
    row: dict[str, Any] = {"label": architecture(spec.variant).label}
    names = ("d", "context", "vocab", "blocks", "ffn", "heads", "q", "q_reduced", "theta")
    row |= {name: getattr(spec, name) for name in names}
    row["target"] = PARAMETERS_PER_D2 * spec.d**2
    totals = ("n_exact", "n_kaplan", "n_embedding", "n_positions", "n_total")
    row |= {name: getattr(counted, name) for name in totals}
    row["n_exact_measured"] = sum(size for name, size in trainable.items() if name not in OUTSIDE_N)
    row["n_total_measured"] = sum(trainable.values())
    row |= {name: getattr(counted, name) for name in ("flops_forward", "flops_head", "flops_training")}
    return row | _reduced_order(spec, network)


def _reduced_order(spec: ModelSpec, network: LanguageModel) -> dict[str, Any]:
    """L·(H * x) against (L·H) * x on the first memory (appendix A.1), and what each costs per token."""
    names = ("reduced_order_error", "flops_full_order", "flops_reduced_order")
    memories = [layer for layer in network.layers if isinstance(layer, LMU)]
    if not memories:
        return dict.fromkeys(names, np.nan)
    layer = memories[0]
    d, q, q_reduced, n = spec.d, spec.q or 0, spec.q_reduced or 0, spec.context
    x_1nd = _input(n, min(d, 8))[None]  # channels do not interact, so a few will do
    L_kq = layer.L.detach().flatten(0, 1)
    with torch.inference_mode():
        full = torch.einsum("kq,bnqd->bnkd", L_kq, layer.memory(x_1nd, form="recurrent"))
        reduced = layer.memory(x_1nd, L_kq)
    error = float((full - reduced).abs().max() / full.abs().max())
    return dict(
        zip(
            names,
            (error, lmu_flops("fft", d, q, n) + 6 * d * q * q_reduced, lmu_qkv_flops(d, q, q_reduced, n)),
            strict=True,
        )
    )


def measure_layers(network: LanguageModel) -> list[Measured]:
    """The layers of the first block, each executed literally, and checked against the program's own forward pass."""
    found = []
    x_nd = _input(network.spec.context, network.spec.d)
    for layer in network.layers[: len(network.layers) // network.spec.blocks]:
        measured = measure(layer, x_nd)
        with torch.inference_mode():
            own = layer(x_nd[None])[0]
        torch.testing.assert_close(measured.output, own, rtol=1e-6, atol=1e-9)
        found.append(measured)
    return found


def table2_rows(spec: ModelSpec, measured: list[Measured]) -> list[dict[str, Any]]:
    rows = []
    for kind, layer in zip(architecture(spec.variant).kinds, measured, strict=True):
        known = {row.operation: row for row in kind.rows(spec)}
        for operation, flops in layer.flops.items():
            row = known.get(operation)
            rows.append(
                {
                    "layer": kind.name,
                    "operation": operation,
                    "repeats": spec.blocks,
                    "parameters_formula": row.parameters_formula if row else "–",
                    "parameters": row.parameters if row else 0,
                    "parameters_measured": layer.parameters[operation],
                    "flops_formula": row.flops_formula if row else "not in Table 2",
                    "flops": row.flops if row else np.nan,
                    "flops_measured": round(flops),
                }
            )
    return rows


def _input(n: int, d: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, d, dtype=torch.float64, generator=generator)
