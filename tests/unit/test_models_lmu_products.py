"""The LMU by matrix products, as GPUs compute it, equals the recurrence; its errors in float32 and bfloat16."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.models import gpu_attention
from lmu_scaling.models import lmu_products as module
from lmu_scaling.models.chunks import chunks, padded
from lmu_scaling.models.forms import lmu_form
from lmu_scaling.models.gpu_attention import lmu_attention
from lmu_scaling.models.legendre import LegendreMemory
from lmu_scaling.models.verification import BOUNDS
from tests import meta
from tests.unit.test_models_implicit_attention import NAMES, assert_near, case, literal, results

# Relative error (of norms) of y, dx, dL and dbias. bfloat16: 3.4e-3 was measured; x alone in bfloat16 causes 1.6e-3.
BOUND = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 5e-3}


def through_products(x, L, bias, p, scale, memory):
    return lmu_attention(x, L, bias, p, memory.theta, scale, x.dtype, compiled=False)


@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_the_layer_equals_the_equations_in_float64_for_any_size(data) -> None:
    q, r = data.draw(st.integers(2, 12), "q"), data.draw(st.integers(1, 4), "r")
    b, n, d = data.draw(st.integers(1, 3), "b"), data.draw(st.integers(1, 70), "n"), data.draw(st.integers(1, 19), "d")
    memory, leaves = LegendreMemory(q, data.draw(st.floats(q, 5 * q), "theta")), case(b, n, d, q, r)
    assert_near(results(through_products, leaves, 0.3, memory), results(literal, leaves, 0.3, memory), 1e-10)
    assert len(NAMES) == 5


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(("q", "n"), [(60, 1024), (60, 1000), (250, 1024)])
def test_pre_activations_and_their_gradients_at_the_papers_sizes(q: int, n: int, dtype: torch.dtype) -> None:
    """Against float64's FFT form, which equals the recurrence to rounding (test_models_legendre.py); 5 channels."""
    b, d, r, g = 2, 5, q // 10, torch.Generator().manual_seed(0)
    memory = LegendreMemory(q, 4 * q)
    x = torch.nn.functional.layer_norm(torch.randn(b, n, d, generator=g, dtype=torch.float64), (d,))
    L = torch.randn(3 * r, q, generator=g, dtype=torch.float64) * math.sqrt(2 / (r + q))
    bias = 0.1 * torch.randn(3 * r, generator=g, dtype=torch.float64)
    leaves = [part.requires_grad_() for part in (x, L, bias)]
    exact = memory(x, L) + bias[:, None]
    dy = torch.randn(exact.shape, generator=g, dtype=torch.float64)
    wide = torch.promote_types(dtype, torch.float32)
    rounded = [part.detach().to(wide).requires_grad_() for part in leaves]
    y = module.pre_activations(*rounded, memory.theta, dtype).tokens()
    assert y.dtype == dtype
    found = [y, *torch.autograd.grad(y, rounded, dy.to(dtype))]
    for name, ours, wanted in zip(
        ("y", "dx", "dL", "dbias"), found, [exact, *torch.autograd.grad(exact, leaves, dy)], strict=True
    ):
        error = ((ours.double() - wanted).norm() / wanted.norm()).item()
        assert error <= BOUND[dtype], (name, error)


def test_hand_written_gradients_pass_gradcheck() -> None:
    memory, leaves = LegendreMemory(5, 12), case(2, 21, 3, 5, 2)
    assert torch.autograd.gradcheck(lambda *parts: through_products(*parts, 0.7, memory), leaves)


def test_padded_channels_stay_zero_and_change_nothing() -> None:
    memory, leaves = LegendreMemory(6, 20), case(2, 30, 5, 6, 2)
    y = module.pre_activations(*leaves[:3], memory.theta)
    columns = y.y_ro.view(y.cut.steps * 6, -1, padded(5))
    assert torch.count_nonzero(columns[..., 5:]) == 0
    assert torch.count_nonzero(columns[..., :5]) > 0


@pytest.mark.parametrize(("q", "r"), [(60, 6), (80, 8), (110, 11), (150, 15), (180, 18), (250, 25)])
def test_the_cut_is_the_cheapest_one_and_covers_the_sequence(q: int, r: int) -> None:
    """C = 64 at the paper's n = 1024 and q' = q/10: √(n q / 3q') = 58."""
    cut = chunks(1024, q, 3 * r)
    assert (cut.steps, cut.count) == (64, 16)
    assert cut.rows % 8 == 0 and cut.rows >= 64 + q + 1


def test_gpus_and_only_gpus_use_products() -> None:
    for dtype in (torch.float32, torch.float64):
        for compiled in (True, False):
            assert lmu_form("cuda", dtype, 25, compiled) == lmu_form("meta", dtype, 25, compiled) == "products"
            assert lmu_form("cpu", dtype, 25, compiled) != "products"


@pytest.mark.parametrize(("d", "q"), [(48, 60), (204, 250)])
def test_in_bfloat16_the_layer_stays_within_what_the_self_test_allows(d: int, q: int) -> None:
    """m and its gradients, one sequence, as the GPU path computes them."""
    memory, r = LegendreMemory(q, 4 * q), q // 10
    x, L, bias, p = case(1, 64, d, q, r)
    leaves = [x, (L / 3).detach().requires_grad_(), (bias / 10).detach().requires_grad_(), p]
    exact = results(through_products, leaves, d**-0.5, memory)
    single = [part.detach().float().requires_grad_() for part in leaves]

    def rounded(x, L, bias, p, scale, memory):
        return lmu_attention(x, L, bias, p, memory.theta, scale, torch.bfloat16, compiled=False)

    assert_near(results(rounded, single, d**-0.5, memory), exact, BOUNDS[torch.bfloat16])


@pytest.mark.parametrize("n", [15, 16, 17, 40])
def test_long_sequences_carry_their_memory_from_segment_to_segment(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that time and memory per token do not grow with n (Table 1)."""
    monkeypatch.setattr(gpu_attention, "SEGMENT", 16)
    memory, leaves = LegendreMemory(6, 25), case(2, n, 5, 6, 2)
    assert_near(results(through_products, leaves, 0.3, memory), results(literal, leaves, 0.3, memory), 1e-10)
    single = [part.detach().float().requires_grad_() for part in leaves]
    assert_near(results(through_products, single, 0.3, memory), results(literal, leaves, 0.3, memory), 1e-5)


def test_the_bytes_that_a_token_moves_do_not_grow_with_the_sequence() -> None:
    moved = []
    for n in (2048, 8192):
        count = meta.Count()
        leaves = [torch.empty(s, device="meta").requires_grad_() for s in ((1, n, 16), (6, 20), (6,), (2,))]
        with count:
            lmu_attention(*leaves, 80.0, 1.0, torch.float32, compiled=False).sum().backward()
        moved.append(sum(count.bytes.values()) / n)
    assert moved[1] < 1.1 * moved[0]
