"""The loss without logits equals the loss with them, in value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.counting import LOSS_TOKENS
from lmu_scaling.models import gpu_head, native
from lmu_scaling.models import loss as module
from lmu_scaling.models.loss import linear_cross_entropy, token_losses
from tests.needs import needs

needs_compiler = needs(native.kernels(), "no C compiler on this machine")
both_forms = pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])


def example(
    tokens: int, classes: int, width: int, scale: float = 1.0, dtype: torch.dtype = torch.float32, seed: int = 0
):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(tokens, width, generator=generator, dtype=dtype)
    weight = scale * torch.randn(classes, width, generator=generator, dtype=dtype)
    targets = torch.randint(classes, (tokens,), generator=generator)
    return h.requires_grad_(), weight.requires_grad_(), targets


def with_gradients(function, h, weight, targets, *how):
    value = function(h, weight, targets, *how)
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


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(2, 3000), st.integers(1, 40), st.integers(1, 3), st.integers(0, 1000))
def test_the_kernel_equals_cross_entropy_for_any_shape(tokens, classes, width, threads, seed) -> None:
    batch = example(tokens, classes, width, seed=seed)
    exact = [part.detach().double().requires_grad_(part.is_floating_point()) for part in batch[:2]]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = with_gradients(linear_cross_entropy, *batch, True)
    finally:
        torch.set_num_threads(before)
    for ours, expected in zip(found, with_gradients(full_logits, *exact, batch[2]), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=5e-6)


@both_forms
def test_equals_cross_entropy_at_gpt2s_vocabulary_to_float32_rounding(compiled: bool) -> None:
    batch = example(600, 50257, 48, scale=0.3)
    for ours, expected in zip(
        with_gradients(linear_cross_entropy, *batch, compiled), with_gradients(full_logits, *batch), strict=True
    ):
        assert (ours - expected).abs().max() <= 5e-6 * expected.abs().max()


def test_gradcheck() -> None:
    h, weight, targets = example(7, 11, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a, b: linear_cross_entropy(a, b, targets), (h, weight))


@both_forms
@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_huge_logits_overflow_neither_value_nor_gradient(scale: float, compiled: bool) -> None:
    """The shift of the exponentials is probed on a few classes; here the largest logit lies far beyond it."""
    h, weight, targets = example(5, module.PROBE + 50, 8)
    with torch.no_grad():
        weight[module.PROBE + 10] = scale * h[0]
    for ours, expected in zip(
        with_gradients(linear_cross_entropy, h, weight, targets, compiled),
        with_gradients(full_logits, h, weight, targets),
        strict=True,
    ):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@both_forms
def test_a_nan_in_states_or_weights_shows_in_the_loss(compiled: bool) -> None:
    """Also one that belongs to no target: otherwise a broken run would look healthy."""
    for spoiled in (0, 1):
        h, weight, _ = example(20, 200, 8)
        with torch.no_grad():
            (h, weight)[spoiled][3, 2] = float("nan")
        assert torch.isnan(linear_cross_entropy(h, weight, torch.zeros(20, dtype=torch.long), compiled))


@both_forms
def test_token_losses_average_to_the_loss(compiled: bool) -> None:
    h, weight, targets = example(1000, 500, 16)
    losses = token_losses(h, weight, targets, compiled)
    torch.testing.assert_close(losses.mean(), linear_cross_entropy(h, weight, targets, compiled).detach())
    torch.testing.assert_close(losses, F.cross_entropy(h @ weight.T, targets, reduction="none").detach())


def test_a_gpus_torch_form_equals_the_loss_and_fits_what_the_memory_model_reserves() -> None:
    assert gpu_head.CHUNK <= LOSS_TOKENS
    h, weight, targets = example(2 * gpu_head.CHUNK + 5, 900, 6, dtype=torch.float64)
    total = len(h)
    log_sum, dh, dweight = gpu_head.chunked(h.detach(), weight.detach())
    expected = with_gradients(lambda h, weight, targets: torch.logsumexp(h @ weight.T, 1).mean(), h, weight, targets)
    torch.testing.assert_close((log_sum.mean(), dh, dweight), expected, rtol=1e-10, atol=1e-12)
    assert len(log_sum) == total


def test_under_autocast_only_the_products_are_rounded() -> None:
    """Logits are bfloat16; exponentials, their sum and the targets' logits are not rounded again."""
    h, weight, targets = example(500, 3000, 16, scale=1.5)
    with torch.autocast("cpu", torch.bfloat16):
        ours = linear_cross_entropy(h, weight, targets, False)
    h, weight = h.detach().bfloat16(), weight.detach().bfloat16()
    wanted = (h.double() * weight[targets].double()).sum(1)
    expected = (torch.logsumexp((h @ weight.T).double(), dim=1) - wanted).mean()
    torch.testing.assert_close(ours.detach().double(), expected, rtol=1e-6, atol=0)


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
