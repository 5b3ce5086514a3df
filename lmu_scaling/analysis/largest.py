"""Table 2 at the paper's largest model, and the appendix's costs of the memory there, whatever was trained.

`table2_largest.csv` has one row per operation of the two LMU variants. `implementations.csv` has one row per way to
update the memory (appendix A.2): printed formula, its value, and FLOPs counted while the equations run; nothing is
counted for Runge-Kutta, which this project does not implement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from lmu_scaling.analysis.counts import measure_layers, table2_rows
from lmu_scaling.analysis.flops import count_flops
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.analysis.table import write_csv
from lmu_scaling.jobs import Output, job
from lmu_scaling.models import resolve
from lmu_scaling.models.layers.lmu import memory_flops, qkv_flops
from lmu_scaling.models.network import build

VARIANTS = ("lmu", "lmu_attention")
SMALL_VOCABULARY = 64  # embedding and head are not part of Table 2
RUNGE_KUTTA_ORDER = 4


@job
def largest(out: Output, implementations: Output) -> dict[str, Any]:
    """Count parameters and FLOPs of the paper's largest model, and of the ways to update its memory.

    Args:
        out: table2_largest.csv
        implementations: implementations.csv
    """
    paper = load_paper()
    size, n = paper["experiment"]["largest"], paper["experiment"]["context"]
    rows = []
    for variant in VARIANTS:
        spec = resolve(variant, size["d"], n, SMALL_VOCABULARY, q=size["q"], q_reduced=size["q_reduced"])
        network = build(spec, seed=0, compile="off").double().eval()
        rows += [{"variant": variant, **row} for row in table2_rows(spec, measure_layers(network))]
    write_csv(out, pd.DataFrame(rows))
    write_csv(implementations, pd.DataFrame(memory_costs(**size, n=n, formulas=paper["appendix"])))
    return {"operations": len(rows)}


def memory_costs(d: int, q: int, q_reduced: int, n: int, formulas: dict[str, str]) -> list[dict[str, Any]]:
    """FLOPs per token of the memory of one layer by each implementation."""
    order = RUNGE_KUTTA_ORDER
    values: dict[str, tuple[str, str, float, float]] = {
        "state_space": ("State space, exact (ZOH)", "L_SS", 2 * d * (q**2 + q), _counted(1, _state_space(d, q))),
        "runge_kutta": (f"Runge-Kutta of order r = {order}", "L_RK", 6 * order * d * q, np.nan),
        "fft": ("Convolution by FFT", "L_FFT", memory_flops(d, q, n), _counted(n, _convolution(d, q, n))),
        "fft_1024": ("Convolution by FFT, n = 1024", "L_FFT-1024", d * (61 * q + 55), np.nan),
        "reduced_order": (
            "Q, K, V in reduced order, by FFT",
            "L_LMU+Q+K+V",
            3 * (d * memory_flops(d, q_reduced, n) + 2 * q * q_reduced),
            np.nan,
        ),
        "reduced_order_corrected": (
            "the same, d counted once (Table 2)",
            "L_LMU+Q+K+V",
            qkv_flops(d, q, q_reduced, n),
            np.nan,
        ),
    }
    dimensions = {"d": d, "q": q, "q_reduced": q_reduced, "n": n}
    return [
        {"implementation": text, "symbol": symbol, "formula": formulas[key], "flops": flops, "flops_counted": counted}
        | dimensions
        for key, (text, symbol, flops, counted) in values.items()
    ]


def _counted(tokens: int, run: Callable[[], Any]) -> float:
    return round(count_flops(run)[1] / tokens)


def _state_space(d: int, q: int) -> Callable[[], Any]:
    """One step of equation 1 for d channels."""
    A_qq, B_q1, m_qd, x_1d = torch.ones(q, q), torch.ones(q, 1), torch.ones(q, d), torch.ones(1, d)
    return lambda: A_qq @ m_qd + B_q1 @ x_1d


def _convolution(d: int, q: int, n: int) -> Callable[[], Any]:
    """Equation 5 for d channels, one order at a time; the filters' spectrum is computed once, so it does not count."""
    H_qf = torch.fft.rfft(torch.ones(q, n), 2 * n)
    x_dn = torch.ones(d, n)

    def run() -> None:
        X_df = torch.fft.rfft(x_dn, 2 * n)
        for H_f in H_qf:
            torch.fft.irfft(X_df * H_f, 2 * n)

    return run
