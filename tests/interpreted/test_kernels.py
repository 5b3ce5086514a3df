"""Triton's kernels, run by its interpreter on the CPU, equal the plain forms in value and gradient.

`tests/unit/test_models_triton.py` runs this file with TRITON_INTERPRET=1, which must be set before Triton is imported.
The interpreter's product of bfloat16 is wrong, so float16 stands in for it.
"""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.models import gpu_attention, gpu_head, triton_attention, triton_head, verification
from lmu_scaling.models.chunks import Chunks, chunks, padded
from lmu_scaling.models.lmu_products import PreActivations

CPU = torch.device("cpu")
PAPER = [(48, 6), (64, 8), (92, 11), (120, 15), (144, 18), (204, 25)]  # d and q'
BOUND = {torch.float32: 5e-6, torch.float16: 2e-3}
torch.set_num_threads(1)
assert os.environ.get("TRITON_INTERPRET") == "1", "run through tests/unit/test_models_triton.py"


@pytest.fixture(autouse=True, scope="module")
def _operations_on_the_cpu() -> None:
    """The operations of torch run the kernels on the CPU as they do on a GPU."""
    for library, name, function in (
        (gpu_attention.OPERATIONS, "attend", gpu_attention._attend_on_gpu),
        (gpu_attention.OPERATIONS, "attend_back", gpu_attention._attend_back_on_gpu),
        (gpu_head.OPERATIONS, "head", gpu_head._head),
    ):
        library.impl(name, function, "CPU")


def attention_errors(cut: Chunks, b: int, d: int, r: int, scale: float, dtype: torch.dtype) -> dict[str, float]:
    g = torch.Generator().manual_seed(0)
    y = torch.randn(cut.steps * 3 * r, cut.count, b, padded(d), generator=g)
    y[..., d:] = 0
    y = y.flatten(1).to(dtype).requires_grad_()
    p = torch.randn(r, generator=g).requires_grad_()
    dm = torch.randn(b, cut.n, d, generator=g)
    kernel = gpu_attention.TritonAttention.apply(y, p, (b, cut.n, d, cut.steps), scale)
    plain = gpu_attention.attend_tokens(PreActivations(y, cut, b, d).tokens().double(), p.double(), scale)
    found = [kernel, *torch.autograd.grad(kernel, (y, p), dm)]
    wanted = [plain, *torch.autograd.grad(plain, (y, p), dm.double())]
    return {
        name: verification.Comparison(name, a.detach(), e.detach()).error
        for name, a, e in zip(("m", "dy", "dp"), found, wanted, strict=True)
    }


@given(data=st.data())
@settings(deadline=None, max_examples=6)
def test_attention_equals_the_equations_for_any_shape(data) -> None:
    b, n, d = data.draw(st.integers(1, 4), "b"), data.draw(st.integers(1, 19), "n"), data.draw(st.integers(1, 40), "d")
    r, dtype = data.draw(st.integers(1, 20), "r"), data.draw(st.sampled_from(list(BOUND)))
    steps = data.draw(st.integers(1, 8), "steps")
    cut = Chunks(n, 5, steps, -(-n // steps))
    errors = attention_errors(cut, b, d, r, data.draw(st.sampled_from([1.0, 0.3])), dtype)
    assert all(error <= BOUND[dtype] for error in errors.values()), errors


@pytest.mark.parametrize(
    ("d", "r", "dtype"), [*((d, r, torch.float32) for d, r in PAPER), (48, 6, torch.float16), (204, 25, torch.float16)]
)
def test_attention_equals_the_equations_at_the_papers_sizes(d: int, r: int, dtype: torch.dtype) -> None:
    """Columns that do not fill the last group of tokens, and padded time."""
    errors = attention_errors(Chunks(2, 10 * r, 1, 3), 1, d, r, d**-0.5, dtype)
    assert all(error <= BOUND[dtype] for error in errors.values()), errors


@given(data=st.data())
@settings(deadline=None, max_examples=6)
def test_the_heads_sums_and_gradients_equal_float64_for_any_shape(data) -> None:
    total, classes = data.draw(st.integers(1, 150), "tokens"), data.draw(st.integers(1, 150), "classes")
    width, dtype = 8 * data.draw(st.integers(1, 26), "width / 8"), data.draw(st.sampled_from(list(BOUND)))
    g = torch.Generator().manual_seed(0)
    h, weight = (torch.randn(rows, width, generator=g).to(dtype) for rows in (total, classes))
    bound = BOUND[dtype] + 3e-7 * float((h.abs().double() @ weight.abs().double().T).max())  # logits are float32
    for found, wanted in zip(triton_head.head(h, weight), gpu_head.chunked(h.double(), weight.double()), strict=True):
        assert verification.Comparison("", found, wanted).error <= bound


@pytest.mark.parametrize("d", [d for d, _ in PAPER])
def test_the_head_proves_itself_at_the_papers_sizes(d: int) -> None:
    assert all(result.error <= BOUND[torch.float32] for result in gpu_head.compare(d, torch.float32, CPU))


def test_huge_logits_overflow_nothing_and_a_nan_shows() -> None:
    h, weight = torch.ones(70, 8), torch.ones(90, 8)
    weight[80] = 1000
    assert all(torch.isfinite(part).all() for part in triton_head.head(h, weight))
    h[3, 2] = float("nan")
    assert torch.isnan(triton_head.head(h, weight)[0][3])


# ------------------------------------------------------------------------------------------------------ verification
@pytest.fixture
def no_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_verdicts", {})


def test_right_kernels_are_used(no_verdicts: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_attention.kernel_is_right(9, 3, torch.float32, CPU)
    assert gpu_head.kernel_is_right(9, torch.float32, CPU)
    assert capsys.readouterr().err == ""


def layer_gradients(compiled: bool) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    shapes = ((2, 19, 9), (9, 12), (9,), (3,))
    leaves = [torch.randn(shape, generator=g).requires_grad_() for shape in shapes]
    m = gpu_attention.lmu_attention(*leaves, 30.0, 0.5, torch.float32, compiled)
    return [m, *torch.autograd.grad(m.square().sum(), leaves)]


def test_the_whole_layer_through_the_kernel_equals_the_layer_without(no_verdicts: None) -> None:
    for found, wanted in zip(layer_gradients(True), layer_gradients(False), strict=True):
        assert verification.Comparison("", found.detach(), wanted.detach()).error <= 1e-5


@pytest.mark.parametrize("fault", ["value", "gradient", "nan", "launch"])
def test_a_wrong_kernel_is_noticed_at_first_use_and_the_plain_form_takes_over(
    fault: str, no_verdicts: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forwards, backwards = triton_attention.attend, triton_attention.attend_back

    def broken_forwards(y, p, m, steps, scale):
        if fault == "launch":
            raise RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")
        forwards(y, p, m, steps, scale)
        if fault in ("value", "nan"):
            m[0, -1, -1] += 1e-3 if fault == "value" else float("nan")

    def broken_backwards(y, p, dm, dy, steps, scale):
        dp = backwards(y, p, dm, dy, steps, scale)
        return dp * 1.001 if fault == "gradient" else dp

    monkeypatch.setattr(triton_attention, "attend", broken_forwards)
    monkeypatch.setattr(triton_attention, "attend_back", broken_backwards)
    monkeypatch.setattr(gpu_attention, "compiled_tokens", lambda: gpu_attention.attend_tokens)
    found = [layer_gradients(True) for _ in range(2)][1]
    assert all(torch.equal(a, b) for a, b in zip(found, layer_gradients(False), strict=True))
    note = capsys.readouterr().err
    assert note.count("note: the Triton kernel for implicit attention") == 1
    assert "selftest" in note


def test_cuts_of_short_sequences_have_a_chunk() -> None:
    assert all(chunks(n, 12, 9).length >= n for n in range(1, 40))
