"""The compiled loss in float32 and bfloat16, for every kind of processor that this one can stand for."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.models import native
from lmu_scaling.models.forms import head_form, rounds_only
from lmu_scaling.models.loss import linear_cross_entropy, token_losses
from tests.needs import ROOT, needs

pytestmark = needs(native.kernels(), "no C compiler on this machine")
LEVELS = range(native.vectors() + 1)  # of `native.vectors`: a processor can do what lesser ones do
BFLOAT16 = 2.0**-8  # largest relative error of rounding to bfloat16

Numbers = tuple[Tensor, Tensor, Tensor]


@contextmanager
def processor(level: int, threads: int = 1) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "vectors", lambda: level)
        yield
    torch.set_num_threads(before)


def autocast(dtype: torch.dtype) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype) if dtype == torch.bfloat16 else nullcontext()


def example(tokens: int, classes: int, width: int, scale: float = 1.0, seed: int = 0) -> Numbers:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(tokens, width, generator=generator)
    weight = scale * torch.randn(classes, width, generator=generator)
    return h, weight, torch.randint(classes, (tokens,), generator=generator)


def kernel(h: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype) -> Numbers:
    """Loss and gradients."""
    h, weight = h.clone().requires_grad_(), weight.clone().requires_grad_()
    with autocast(dtype):
        loss = linear_cross_entropy(h, weight, targets)
    return loss.detach(), *torch.autograd.grad(loss, (h, weight))


def check(batch: Numbers, dtype: torch.dtype) -> None:
    """Against float64 on the rounded operands. In bfloat16 e = exp(logit - shift) and h / sum e are rounded once more.

    The gradients are sums of p w and of p h, so their errors are relative to the sums of p |w| and of p |h|.
    """
    h, weight = (part.to(dtype).double() for part in batch[:2])
    targets, tokens = batch[2], len(h)
    logits = h @ weight.T
    p = torch.softmax(logits, 1)
    wanted = F.one_hot(targets, len(weight))
    exact = (F.cross_entropy(logits, targets), (p - wanted) @ weight, (p - wanted).T @ h)
    size = (exact[0].abs() + logits.abs().amax(), p @ weight.abs(), p.T @ h.abs())
    whole = (size[0], size[1] + weight[targets].abs(), size[2] + wanted.T.double() @ h.abs())  # with the targets' part
    # rounding of float32 logits shows in p
    single = 1e-5 + 3e-7 * float((h.abs() @ weight.abs().T).amax())
    once = BFLOAT16 if dtype == torch.bfloat16 else 0.0
    bounds = (1e-6, once + single, 2 * once + single)
    for ours, true, scale, all_, bound, share in zip(
        kernel(*batch, dtype), exact, size, whole, bounds, (1, tokens, tokens), strict=True
    ):
        allowed = bound * scale / share + 3e-7 * all_ / share
        assert ((ours.double() - true / share).abs() <= allowed).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 420),
    st.integers(2, 1500),
    st.integers(1, 70),
    st.sampled_from([0.02, 0.3, 1.5]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from(LEVELS),
    st.integers(0, 1000),
)
def test_equals_float64_for_any_shape(
    tokens: int, classes: int, width: int, scale: float, dtype: torch.dtype, level: int, seed: int
) -> None:
    with processor(level, threads=1 + seed % 3):
        check(example(tokens, classes, width, scale, seed), dtype)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width", [48, 204])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_float64_at_the_papers_shapes(width: int, dtype: torch.dtype, level: int) -> None:
    with processor(level, threads=2):
        check(example(200, 50257, width, 0.1), dtype)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("logit", [90.0, 3000.0, 1e30])
def test_extreme_logits_overflow_neither_value_nor_gradient(logit: float, dtype: torch.dtype, level: int) -> None:
    """The shift of the exponentials is probed on the first classes; here the largest logit lies far beyond it."""
    h, weight, targets = example(50, 900, 8)
    h[:, 0] = 1.0
    weight[700, 0], weight[800, 0] = logit, -logit
    with processor(level):
        found = kernel(h, weight, targets, dtype)
        losses = token_losses(h, weight, targets)
    exact = F.cross_entropy(h.double() @ weight.double().T, targets, reduction="none")
    torch.testing.assert_close(losses.double(), exact, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found[0].double(), exact.mean(), rtol=BFLOAT16, atol=0.03)
    assert all(torch.isfinite(part).all() for part in found)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spoiled", ["first state", "last state", "first weight", "last weight"])
def test_nan_and_infinity_show_in_the_loss_as_they_do_with_logits(
    spoiled: str, value: float, dtype: torch.dtype, level: int
) -> None:
    """Class 0 is every target, so a spoiled weight counts through the sum alone; -inf is harmless there."""
    h, weight, _ = example(230, 601, 20)
    targets = torch.zeros(230, dtype=torch.long)
    weight[1:, 2], h[:, 2] = weight[1:, 2].abs(), h[:, 2].abs()
    place = {"first state": h[0], "last state": h[-1], "first weight": weight[1], "last weight": weight[-1]}
    place[spoiled][2] = value
    expected = F.cross_entropy(h @ weight.T, targets)
    with processor(level):
        found = kernel(h, weight, targets, dtype)[0]
        with autocast(dtype):
            apart = token_losses(h, weight, targets).mean()
    for loss in (found, apart):
        assert torch.isfinite(loss) == torch.isfinite(expected)
        if torch.isfinite(expected):
            torch.testing.assert_close(loss, expected, rtol=5e-3, atol=0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("classes", [70, 5003])
def test_the_number_of_threads_changes_no_bit(classes: int, dtype: torch.dtype, level: int) -> None:
    batch = example(431, classes, 52)
    found = []
    for threads in (1, 2, 3, 7):
        with processor(level, threads):
            found.append(kernel(*batch, dtype))
    for other in found[1:]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[0], other, strict=True))


@pytest.mark.parametrize("width", [48, 204])
def test_which_form_runs_follows_from_the_processor(width: int) -> None:
    wide = width > 80
    for level, single, rounded in (
        (0, "tiles" if wide else "native", True),
        (1, "native", True),
        (2, "native", False),
    ):
        with processor(level):
            assert head_form("cpu", torch.float32, width, True) == single
            assert rounds_only("cpu", torch.bfloat16, True) == rounded
            assert (
                head_form("cpu", torch.float64, width, True) == head_form("cpu", torch.float32, width, False) == "tiles"
            )
    with processor(2):
        assert head_form("cpu", torch.bfloat16, width, True) == "native"


# The loss of the example below and the norms of its gradients, measured before there were forms for AVX-512.
BEFORE = {
    "float32": (9.97414589, 0.124684824, 0.409154678),
    "bfloat16": (9.97404671, 0.124676459, 0.409137281),
}
LESSER = """
import json, torch
from lmu_scaling.models import native
from tests.unit.test_models_head_kernel import example, kernel
print(json.dumps([native.vectors(), *(
    [float(part.double().norm()) for part in kernel(*example(300, 3000, 48, 0.3), dtype)]
    for dtype in (torch.float32, torch.bfloat16)
)]))
"""


@pytest.mark.parametrize("switch", ["0", "portable", ""])
def test_a_lesser_processor_gives_the_results_of_before(switch: str) -> None:
    """Without compiled kernels, without AVX-512, and with what this processor has."""
    environment = os.environ | {"LMU_SCALING_NATIVE": switch, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LESSER]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    level, single, half = json.loads(done.stdout.splitlines()[-1])
    assert level == (native.vectors() if not switch else 0)
    assert single == pytest.approx(BEFORE["float32"], rel=1e-6)
    assert half == pytest.approx(BEFORE["bfloat16"], rel=1e-3)
