"""The compiled causal attention equals torch's in float64; the number of threads changes no bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lmu_scaling.models import native
from lmu_scaling.models.causal_attention import causal_attention
from lmu_scaling.models.forms import attention_form
from tests.needs import needs
from tests.processors import processor

pytestmark = needs(native.kernels(), "no C compiler on this machine")


def example(b: int, n: int, h: int, e: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    """Queries, keys and values in one tensor, as a linear layer makes them."""
    return scale * torch.randn(b, n, 3, h, e, generator=torch.Generator().manual_seed(seed))


def attend(x: Tensor, rotary: bool = False, compiled: bool = True) -> tuple[Tensor, Tensor]:
    """Output, and the gradient of a fixed linear function of it."""
    x = x.clone().requires_grad_()
    out = causal_attention(*x.unbind(2), rotary, compiled)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(out.dtype)
    return out.detach(), torch.autograd.grad((out * weights).sum(), x)[0]


@settings(max_examples=40, deadline=None)
@given(
    b=st.integers(1, 3),
    n=st.integers(1, 70),
    h=st.integers(1, 3),
    e=st.integers(1, 53),
    scale=st.sampled_from([0.01, 1.0, 4.0]),
    rotary=st.booleans(),
    seed=st.integers(0, 99),
    avx512=st.booleans(),
)
def test_it_equals_torch_in_float64(
    b: int, n: int, h: int, e: int, scale: float, rotary: bool, seed: int, avx512: bool
) -> None:
    """The kernel may err eight times as much as torch's float32, and never by more than 1e-4 of the largest entry."""
    x = example(b, n, h, e, scale, seed)
    exact = attend(x.double(), rotary, compiled=False)
    with processor(avx512):
        found = attend(x, rotary)
    for ours, torchs, true in zip(found, attend(x, rotary, compiled=False), exact, strict=True):
        size = float(true.abs().max()) + 1e-30
        error, theirs = (float((part - true).abs().max()) / size for part in (ours, torchs))
        assert error <= min(1e-4, max(2e-6, 8 * theirs))


@pytest.mark.parametrize("avx512", [True, False])
@pytest.mark.parametrize("e", [8, 12, 16, 24, 32, 46, 51])
def test_the_heads_of_all_shipped_sizes(e: int, avx512: bool) -> None:
    x = example(2, 136, 2, e)
    with processor(avx512):
        found = attend(x, True)
    for ours, true in zip(found, attend(x.double(), True, compiled=False), strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=1e-4, atol=2e-6)


def test_scores_of_thousands_do_not_overflow() -> None:
    x = example(1, 33, 1, 16, scale=60.0)
    for ours, true in zip(attend(x), attend(x.double(), compiled=False), strict=True):
        assert float((ours - true).abs().max() / true.abs().max()) < 1e-3


def test_no_token_depends_on_a_later_one() -> None:
    x, other = example(1, 50, 2, 8), example(1, 50, 2, 8)
    other[:, 21:] = 7.0
    assert torch.equal(attend(x)[0][:, :21], attend(other)[0][:, :21])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_number_that_is_not_finite_is_not_hidden(part: int, bad: float) -> None:
    """It reaches the tokens that see it; earlier ones only within its block of queries (0 · NaN in a product)."""
    x = example(1, 40, 1, 8)
    x[0, 19, part, 0, 3] = bad
    ours, torchs = (attend(x, compiled=compiled)[0][0, :, 0].isfinite().all(1) for compiled in (True, False))
    assert ours[:16].all() and not ours[19]
    assert not (ours & ~torchs)[19:].any(), "what torch reports as not finite is never hidden"


@pytest.mark.parametrize("n", [24, 61])
def test_the_number_of_threads_changes_no_bit(n: int) -> None:
    x, before, found = example(3, n, 2, 12), torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(attend(x, rotary=True))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_strides_of_the_inputs_change_no_bit() -> None:
    x = example(2, 30, 2, 8)
    for changed in (x.unbind(2), [part.transpose(2, 3).contiguous().transpose(2, 3) for part in x.unbind(2)]):
        out = causal_attention(*changed, False, True)
        assert torch.equal(out, causal_attention(*(part.contiguous() for part in x.unbind(2)), False, True))


def test_under_bfloat16_autocast_it_runs_in_float32() -> None:
    x = example(1, 20, 2, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = causal_attention(*x.unbind(2), False, True)
    assert out.dtype == torch.float32
    assert torch.equal(out, causal_attention(*x.float().unbind(2), False, True))


def test_where_the_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attention_form("cpu", torch.float32, compiled=True) == "native"
    assert attention_form("cpu", torch.float64, compiled=True) == "torch"
    assert attention_form("cpu", torch.float32, compiled=False) == "torch"
    assert attention_form("cuda", torch.float32, compiled=True) == "torch"
    monkeypatch.setattr(native, "kernels", lambda: None)
    assert attention_form("cpu", torch.float32, compiled=True) == "torch"
