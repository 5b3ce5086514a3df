"""Parameters and FLOPs of every model, by formula and as measured on the built network (Table 2, appendix A.1).

`table2.csv` has one row per operation, variant and size. `counts.csv` has one row per model; for models with a memory
it includes the difference between the reduced-order and the full-order form, in float64.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch

from lmu_scaling.analysis.flops import OperationCounter
from lmu_scaling.counting import count
from lmu_scaling.jobs import Output, job
from lmu_scaling.models import ModelSpec, architecture
from lmu_scaling.models.layer import Layer
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.models.sizes import PARAMETERS_PER_D2
from lmu_scaling.runtime import atomic_write, progress

OUTSIDE_N = ("head_weight", "positions")


@runtime_checkable
class HasReducedOrder(Protocol):
    """A layer that computes L·M without forming M."""

    def reduced_order(self, x_1nd: torch.Tensor) -> dict[str, float]: ...


@job
def counts(models: dict[str, ModelSpec], out: Output, table2: Output) -> dict[str, Any]:
    """Count parameters and FLOPs of every model, by formula and on the built network (Table 2).

    Args:
        models: the models by `<variant>-<size>`, as JSON
        out: counts.csv
        table2: table2.csv
    """
    rows_of_models, operations = [], []
    for name, spec in progress(models.items(), "count", unit="model"):
        network = build(spec, seed=0, compile="off").double().eval()
        keys = {"variant": spec.variant, "size": name.removeprefix(f"{spec.variant}-")}
        measured = measure_layers(network)
        rows_of_models.append(keys | model_row(spec, network))
        operations += [keys | row for row in table2_rows(spec, measured)]
    for path, rows in ((out, rows_of_models), (table2, operations)):
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
    return row | _reduced_order(network)


def _reduced_order(network: LanguageModel) -> dict[str, float]:
    """The check of the first layer that has a reduced order (appendix A.1), if any."""
    checked = next((layer for layer in network.layers if isinstance(layer, HasReducedOrder)), None)
    if checked is None:
        return dict.fromkeys(("reduced_order_error", "flops_full_order", "flops_reduced_order"), np.nan)
    x_nd = _input(network.spec.context, min(network.spec.d, 8))  # channels do not interact: a few are enough
    with torch.inference_mode():
        return checked.reduced_order(x_nd[None])


def measure_layers(network: LanguageModel) -> list[OperationCounter]:
    """The layers of the first block, run one operation at a time and checked against their forward pass."""
    found = []
    x_nd = _input(network.spec.context, network.spec.d)
    for description, layer in zip(architecture(network.spec.variant).layers, network.layers, strict=False):
        assert isinstance(layer, Layer)
        rows = description.rows(network.spec)
        counter = OperationCounter(len(x_nd), rows[0].operation if rows else description.name)
        with torch.no_grad():
            output = layer.forward_by_operation(x_nd, counter)
            torch.testing.assert_close(output, layer(x_nd[None])[0], rtol=1e-6, atol=1e-9)
        found.append(counter)
    return found


def table2_rows(spec: ModelSpec, measured: list[OperationCounter]) -> list[dict[str, Any]]:
    rows = []
    for layer, counter in zip(architecture(spec.variant).layers, measured, strict=True):
        known = {row.operation: row for row in layer.rows(spec)}
        for operation, flops in counter.flops.items():
            row = known.get(operation)
            rows.append(
                {
                    "layer": layer.name,
                    "operation": operation,
                    "repeats": spec.blocks,
                    "parameters_formula": row.parameters_formula if row else "–",
                    "parameters": row.parameters if row else 0,
                    "parameters_measured": counter.parameters[operation],
                    "flops_formula": row.flops_formula if row else "not in Table 2",
                    "flops": row.flops if row else np.nan,
                    "flops_measured": round(flops),
                }
            )
    return rows


def _input(n: int, d: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, d, dtype=torch.float64, generator=generator)
