"""Count the floating-point operations (FLOPs) that torch executes, in the paper's convention (appendix A.2, Table 2).

A multiply–add is two, a complex product six, a division one, and a real Fourier transform of length N costs half of
5 N log₂N. Element-wise functions, sums and biases are not counted, as in the paper. torch's own counter knows no FFT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

COMPLEX_PRODUCT = 6
aten = torch.ops.aten


class FlopCounter(TorchDispatchMode):
    """with FlopCounter() as counter: …; counter.flops"""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        rule = RULES.get(func.overloadpacket)
        if rule is not None:
            self.flops += rule(out, *args)
        return out


def _product(out: Any, a: torch.Tensor, b: torch.Tensor) -> float:
    return 2.0 * out.numel() * a.shape[-1]


def _product_with_bias(out: Any, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    return _product(out, a, b)


def _elementwise_product(out: Any, *_: Any) -> float:
    return COMPLEX_PRODUCT * out.numel() if out.is_complex() else 0.0


def real_fft_flops(length: int) -> float:
    return 5 * length * math.log2(length) / 2


def _forward_fft(out: Any, x: torch.Tensor, dims: list[int], *_: Any) -> float:
    length = x.shape[dims[-1]]
    return x.numel() / length * real_fft_flops(length)


def _inverse_fft(out: Any, x: torch.Tensor, dims: list[int], *_: Any) -> float:
    length = out.shape[dims[-1]]
    return out.numel() / length * real_fft_flops(length)


RULES: dict[Any, Callable[..., float]] = {
    aten.mm: _product,
    aten.bmm: _product,
    aten.addmm: _product_with_bias,
    aten.baddbmm: _product_with_bias,
    aten.mul: _elementwise_product,
    aten.div: lambda out, *_: float(out.numel()),
    aten._fft_r2c: _forward_fft,
    aten._fft_c2r: _inverse_fft,
}


def count_flops(run: Callable[[], Any]) -> tuple[Any, float]:
    with torch.no_grad(), FlopCounter() as counter:  # inference mode would hide products inside composite operations
        result = run()
    return result, counter.flops


class OperationCounter:
    """The parameters (matrices only) and FLOPs per token of each operation of a layer, by the names of Table 2.

    Passed as `run` to `Layer.forward_by_operation`.
    """

    def __init__(self, tokens: int, first: str) -> None:
        self.tokens, self.first = tokens, first
        self.parameters: dict[str, int] = {}
        self.flops: dict[str, float] = {}

    def __call__(
        self, operation: str | None, function: Callable[..., Any], *inputs: Any, matrices: Iterable[torch.Tensor] = ()
    ) -> Any:
        name = operation or self.first
        result, flops = count_flops(lambda: function(*inputs))
        self.flops[name] = self.flops.get(name, 0.0) + flops / self.tokens
        self.parameters[name] = self.parameters.get(name, 0) + sum(matrix.numel() for matrix in matrices)
        return result
