"""The compiled LSTM equals torch's in float64; neither threads nor the batch change a bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lmu_scaling.models import lstm_kernel, native, resolve
from lmu_scaling.models.forms import WIDEST_LSTM, lstm_form
from lmu_scaling.models.lstm_kernel import lstm
from lmu_scaling.models.network import build
from tests.needs import needs
from tests.processors import processor

pytestmark = needs(native.kernels(), "no C compiler on this machine")


def example(b: int, n: int, d: int, scale: float = 1.0, seed: int = 0) -> list[Tensor]:
    """x, W, U, bias, and the gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(b, n, d), (4 * d, d), (4 * d, d), (4 * d,), (b, n, d)]
    x, *weights, gradient = (torch.randn(shape, generator=generator) for shape in shapes)
    return [scale * x, *(part / d**0.5 for part in weights), gradient]


def ours(inputs: list[Tensor], bf16: bool = False) -> list[Tensor]:
    """The output, and the gradients of x, W, U and the bias."""
    *leaves, gradient = (part.clone().requires_grad_() for part in inputs)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        out = lstm(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient.detach())]


def torchs(inputs: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    x, W, U, bias, gradient = (part.to(dtype) for part in inputs)
    cell = nn.LSTM(x.shape[2], x.shape[2], batch_first=True, dtype=dtype)
    with torch.no_grad():
        for parameter, value in zip(cell.parameters(), (W, U, bias, torch.zeros_like(bias)), strict=True):
            parameter.copy_(value)
    x = x.requires_grad_()
    out = cell(x)[0]
    return [out.detach(), *torch.autograd.grad(out, [x, *list(cell.parameters())[:3]], gradient)]


def error(found: Tensor, true: Tensor) -> float:
    """Of the largest entry; gradients behind saturated gates are as good as zero."""
    return float((found.double() - true).abs().max() / (true.abs().max() + 1e-6))


@settings(max_examples=40, deadline=None)
@given(
    b=st.integers(1, 7),
    n=st.integers(1, 40),
    d=st.integers(1, 70),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    seed=st.integers(0, 99),
    avx512=st.booleans(),
)
def test_it_equals_torch_in_float64(b: int, n: int, d: int, scale: float, seed: int, avx512: bool) -> None:
    """Up to 2e-5 of the largest entry, or eight times torch's error in float32, but never more than 1e-4."""
    inputs = example(b, n, d, scale, seed)
    with processor(avx512):
        found = ours(inputs)
    exact, single = torchs(inputs, torch.float64), torchs(inputs, torch.float32)
    for own, theirs, true in zip(found, single, exact, strict=True):
        assert error(own, true) <= min(1e-4, max(2e-5, 8 * error(theirs, true)))


@pytest.mark.parametrize("d", [20, 48, 204])
def test_in_bfloat16_only_the_products_are_rounded(d: int) -> None:
    """Gradients as small as those of a large batch do not vanish, as they would in float16."""
    inputs = example(2, 64, d)
    inputs[4] *= 1e-9
    found, exact = ours(inputs, bf16=True), torchs(inputs, torch.float64)
    assert all(part.dtype == torch.float32 for part in found)
    errors = [float((own.double() - true).norm() / true.norm()) for own, true in zip(found, exact, strict=True)]
    assert errors[0] < 4e-3 and max(errors) < 1e-2


def test_no_token_depends_on_a_later_one() -> None:
    x, *rest = example(1, 30, 12)
    other = x.clone()
    other[:, 17:] = 7.0
    assert torch.equal(ours([x, *rest])[0][:, :17], ours([other, *rest])[0][:, :17])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_not_hidden(bad: float) -> None:
    x, *rest = example(1, 12, 8)
    x[0, 5, 3] = bad
    finite = ours([x, *rest])[0][0].isfinite().all(1)
    assert finite[:5].all()
    expected = torchs([x, *rest], torch.float64)[0][0].isfinite().all(1)
    assert not (finite & ~expected).any(), "what torch reports as not finite is never hidden"


@pytest.mark.parametrize("d", [5, 33])
def test_neither_threads_nor_other_sequences_change_a_bit(d: int) -> None:
    _, _, U, _, gradient = example(7, 25, d)
    gates = torch.randn(7, 25, 4 * d, generator=torch.Generator().manual_seed(1))
    parts = [(0, 4), (4, 6), (6, 7)]
    found = [recurrence(gates, U, gradient, threads) for threads in (1, 2, 5)]
    alone = [recurrence(gates[i:j], U, gradient[i:j], 1) for i, j in parts]
    found.append([torch.cat(pieces) for pieces in zip(*alone, strict=True)])
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def recurrence(gates_bng: Tensor, U: Tensor, gradient: Tensor, threads: int) -> list[Tensor]:
    """The kernel without the products around it: h, and the gradients of the gates."""
    b, n, d = gradient.shape
    gates, cell, h = gates_bng.clone(), torch.empty(b, n, d), torch.empty(b, n, d)
    lstm_kernel._forward(U, gates, cell, h, b, n, d, threads)
    lstm_kernel._backward(U, gates, cell, gradient.contiguous(), b, n, d, threads)
    return [h, gates]


def test_streaming_gives_what_the_whole_sequence_gives() -> None:
    model = build(resolve("lstm", 16, 32, 50), seed=1)
    ids = torch.randint(0, 50, (2, 20), generator=torch.Generator().manual_seed(0))
    state = model.initial_state(2)
    with torch.no_grad():
        whole = model(ids)
        for t in range(20):
            logits, state = model.step(ids[:, t], state)
            torch.testing.assert_close(logits, whole[:, t], rtol=1e-5, atol=1e-6)


def test_where_the_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = torch.zeros(1, 1, WIDEST_LSTM), torch.zeros(1, 1, WIDEST_LSTM + 1)
    monkeypatch.setattr(native, "vectors", lambda: 1)
    assert lstm_form(narrow, compiled=True) == "native"
    assert lstm_form(narrow, compiled=False) == lstm_form(wide, True) == lstm_form(narrow.double(), True) == "torch"
    with torch.autocast("cpu", torch.bfloat16):
        assert lstm_form(wide, compiled=True) == "native"
    monkeypatch.setattr(native, "vectors", lambda: 0)
    assert lstm_form(narrow, compiled=True) == "torch", "without AVX-512 nothing changes"
