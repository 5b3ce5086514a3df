"""The memory: its matrices, its forms and their gradients (eqs. 1–7 and appendix A.1)."""

import sys

import numpy as np
import pytest
import scipy.signal
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.models import legendre
from lmu_scaling.models.legendre import FORMS, LegendreMemory, discretise, impulse, matrices

PARALLEL = [form for form in FORMS if form != "recurrent"]


def worst(a, b):
    return float((a - b).abs().max() / b.abs().max())


def test_matrices_spell_equations_2_and_3():
    A, B = matrices(3, 2.0)
    assert A.tolist() == [[-0.5, -0.5, -0.5], [1.5, -1.5, -1.5], [-2.5, 2.5, -2.5]]
    assert B[:, 0].tolist() == [0.5, -1.5, 2.5]


@pytest.mark.parametrize(("q", "theta"), [(1, 1), (6, 20), (60, 240), (250, 1000)])
def test_zero_order_hold_equals_scipys(q, theta):
    A, B = matrices(q, theta)
    expected_A, expected_B, *_ = scipy.signal.cont2discrete((A, B, np.eye(q), np.zeros((q, 1))), 1.0, method="zoh")
    Abar, Bbar = discretise(A, B)
    np.testing.assert_allclose(Abar, expected_A, atol=1e-12)
    np.testing.assert_allclose(Bbar, expected_B, atol=1e-12)


def test_zero_order_hold_satisfies_the_papers_formula():
    A, B = matrices(12, 50)
    Abar, Bbar = discretise(A, B)
    np.testing.assert_allclose(Bbar, np.linalg.solve(A, (Abar - np.eye(12)) @ B), atol=1e-12)


@pytest.mark.parametrize(("q", "bound"), [(6, 0.1), (8, 1e-2), (12, 1e-4), (20, 1e-4)])
def test_memory_is_the_legendre_projection_of_its_window(q, bound):
    """An independent derivation: Legendre polynomials on m give back a band-limited input, delayed by up to theta.

    The input has at most 1.2 periods per window, amplitude 1.5; the bound is on the root mean square error. A hold of
    one step delays the input by half a step, which is taken out. What remains at q = 20 is the hold's staircase.
    """
    theta, n = 400, 2400
    t = np.arange(n, dtype=float)

    def signal(time):
        return np.sin(2 * np.pi * 0.7 * time / theta + 0.3) + 0.5 * np.cos(2 * np.pi * 1.2 * time / theta)

    m_nq = LegendreMemory(q, theta)(torch.from_numpy(signal(t))[None, :, None])[0, :, :, 0].numpy()
    for delay in np.linspace(theta / 10, theta, 9):
        shifted = np.polynomial.legendre.legvander(np.array([2 * delay / theta - 1]), q - 1)[0]
        late = t[theta * 4 :]
        error = m_nq[theta * 4 :] @ shifted - signal(late - delay + 0.5)
        assert np.sqrt(np.mean(error**2)) < bound, delay


def test_a_longer_response_begins_with_the_shorter_one():
    system = legendre.Impulse(10, 40)
    short = system.response(7).copy()
    np.testing.assert_array_equal(system.response(300)[:, :7], short)
    np.testing.assert_array_equal(system.response(7), short)


@pytest.mark.parametrize("form", PARALLEL)
@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_all_forms_equal_the_recurrence_in_float64(form, data):
    q = data.draw(st.integers(1, 24), "q")
    theta = data.draw(st.floats(q, 6 * q), "theta")
    n = data.draw(st.integers(1, 150), "n")
    b, d = data.draw(st.integers(1, 3), "b"), data.draw(st.integers(1, 4), "d")
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(b, n, d, dtype=torch.float64, generator=generator)
    memory = LegendreMemory(q, theta)
    full = memory(x, form="recurrent")
    assert worst(memory(x, form=form), full) < 1e-10
    L = torch.randn(5, q, dtype=torch.float64, generator=generator)
    assert worst(memory(x, L, form=form), torch.einsum("kq,bnqd->bnkd", L, full)) < 1e-10


@pytest.mark.parametrize(("form", "bound"), [("fft", 5e-5), ("direct", 5e-5), ("recurrent", 2e-4)])
def test_float32_keeps_its_digits_at_the_papers_largest_size(form, bound):
    x = torch.randn(1, 1024, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    L = torch.randn(75, 250, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) / 250**0.5
    memory = LegendreMemory(250, 1000)
    exact = memory(x, L)
    assert worst(memory(x.float(), L.float(), form=form).double(), exact) < bound


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [9, 37])
def test_gradients_to_input_and_projection(form, n):
    memory = LegendreMemory(5, 12)
    x = torch.randn(1, n, 2, dtype=torch.float64, requires_grad=True)
    L = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, L: memory(x, L, form=form), (x, L))


@pytest.mark.parametrize("form", FORMS)
def test_the_memory_is_causal(form):
    """Direct and recurrent forms to the last bit; the FFT within its rounding (1e-6 of the largest output)."""
    x = torch.randn(1, 90, 3, generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[:, 41] += 1.0
    memory = LegendreMemory(8, 32)
    before, after = memory(x, form=form), memory(changed, form=form)
    assert (before[:, :41] - after[:, :41]).abs().max() <= (1e-6 * before.abs().max() if form == "fft" else 0)
    assert (before[:, 41] - after[:, 41]).abs().max() > 0.01


def test_streaming_equals_the_recurrence_and_keeps_its_size():
    memory = LegendreMemory(12, 48)
    x = torch.randn(2, 70, 3)
    state = memory.initial_state(2, 3)
    outputs = []
    for t in range(70):
        m, state = memory.step(x[:, t], state)
        outputs.append(m)
        assert state.m_bqd.shape == (2, 12, 3)
    torch.testing.assert_close(torch.stack(outputs, 1), memory(x, form="fft"), atol=2e-5, rtol=1e-4)


def test_half_precision_input_is_computed_in_float32():
    x = torch.randn(1, 50, 2).bfloat16()
    memory = LegendreMemory(6, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = memory(x, torch.randn(4, 6))
    assert out.dtype == torch.float32


def test_more_orders_than_window_steps_are_refused():
    with pytest.raises(ValueError, match="degrees of freedom"):
        LegendreMemory(11, 10)


def test_unknown_form_is_refused():
    with pytest.raises(ValueError, match="unknown form"):
        LegendreMemory(4, 10)(torch.zeros(1, 3, 1), form="scan")


def test_layers_of_one_kind_share_the_frozen_matrices():
    assert LegendreMemory(6, 24).system is LegendreMemory(6, 24).system is impulse(6, 24)
    assert not LegendreMemory(6, 24).state_dict()


@pytest.mark.parametrize("form", legendre.FORMS)
def test_what_was_cached_while_generating_serves_training(form):
    memory = LegendreMemory(7, 29 + legendre.FORMS.index(form))  # a system that no other test has used
    x, L = torch.randn(1, 40, 2), torch.randn(3, 7, requires_grad=True)
    with torch.inference_mode():
        memory(x, form=form)
    memory(x, L, form=form).sum().backward()
    assert L.grad is not None


def test_the_file_stands_alone():
    """It can be copied into another project: it imports nothing of ours."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(legendre.__file__).read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    foreign = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    assert foreign == {"numpy", "scipy", "torch"}
