"""The loss without logits equals the loss with them, in value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.training import loss as module
from lmu_scaling.training.loss import linear_cross_entropy, token_losses


def example(
    tokens: int, classes: int, width: int, scale: float = 1.0, dtype: torch.dtype = torch.float32, seed: int = 0
):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(tokens, width, generator=generator, dtype=dtype)
    weight = scale * torch.randn(classes, width, generator=generator, dtype=dtype)
    targets = torch.randint(classes, (tokens,), generator=generator)
    return h.requires_grad_(), weight.requires_grad_(), targets


def with_gradients(function, h, weight, targets):
    value = function(h, weight, targets)
    return value.detach(), *torch.autograd.grad(value, (h, weight))


def full_logits(h, weight, targets):
    return F.cross_entropy(h @ weight.T, targets)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 700), st.integers(2, 9000), st.integers(1, 20), st.integers(0, 1000))
def test_equals_cross_entropy_on_full_logits_for_any_shape(tokens: int, classes: int, width: int, seed: int) -> None:
    batch = example(tokens, classes, width, dtype=torch.float64, seed=seed)
    for ours, expected in zip(
        with_gradients(linear_cross_entropy, *batch), with_gradients(full_logits, *batch), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_equals_cross_entropy_at_gpt2s_vocabulary_to_float32_rounding() -> None:
    batch = example(600, 50257, 48, scale=0.3)
    for ours, expected in zip(
        with_gradients(linear_cross_entropy, *batch), with_gradients(full_logits, *batch), strict=True
    ):
        assert (ours - expected).abs().max() <= 5e-6 * expected.abs().max()


def test_gradcheck() -> None:
    h, weight, targets = example(7, 11, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a, b: linear_cross_entropy(a, b, targets), (h, weight))


@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_huge_logits_overflow_neither_value_nor_gradient(scale: float) -> None:
    """The shift of the exponentials is probed on a few classes; here the largest logit lies far beyond it."""
    h, weight, targets = example(5, module.PROBE + 50, 8)
    with torch.no_grad():
        weight[module.PROBE + 10] = scale * h[0]
    for ours, expected in zip(
        with_gradients(linear_cross_entropy, h, weight, targets),
        with_gradients(full_logits, h, weight, targets),
        strict=True,
    ):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_token_losses_average_to_the_loss() -> None:
    h, weight, targets = example(1000, 500, 16)
    losses = token_losses(h, weight, targets)
    torch.testing.assert_close(losses.mean(), linear_cross_entropy(h, weight, targets).detach())
    torch.testing.assert_close(losses, F.cross_entropy(h @ weight.T, targets, reduction="none").detach())


def test_never_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor as large as tokens × classes is ever made."""
    tokens, classes = 4 * module.TOKENS, 3000
    h, weight, targets = example(tokens, classes, 4)
    largest = 0

    class Spy(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Spy():
        linear_cross_entropy(h, weight, targets).backward()
    assert largest <= module.TOKENS * classes
