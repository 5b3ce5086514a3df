"""Implicit self-attention on the memory: every form equals the paper's equations, evaluated literally in float64."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from lmu_scaling.errors import ModelError
from lmu_scaling.models import implicit_attention, lmu_kernels, native, resolve
from lmu_scaling.models.legendre import LegendreMemory, add_product
from lmu_scaling.models.network import build
from tests.needs import needs
from tests.processors import processor

needs_compiler = needs(native.kernels(), "no C compiler on this machine")


def literal(x_bnd, L_kq, bias_k, p_i, scale, memory):
    """Equations 1 and 8–10, one step after the other, with M' = softmax(QKᵀ)V formed."""
    m_bnqd = memory(x_bnd, form="recurrent")
    Q, K, V = F.gelu(torch.einsum("kq,bnqd->bnkd", L_kq, m_bnqd) + bias_k[:, None]).chunk(3, dim=2)
    mixed = torch.softmax(scale * (Q @ K.transpose(-1, -2)), dim=-1) @ V
    return torch.einsum("i,bnid->bnd", p_i, mixed)


def through(form, keep=True):
    def run(x, L, bias, p, scale, memory):
        filters = memory.filters(x.shape[1], x.dtype, x.device, L)
        if form in ("native", "torch"):
            function = implicit_attention.NativeLMU if form == "native" else implicit_attention.TorchLMU
            return function.apply(x, filters, bias, p, scale, keep)
        plain = implicit_attention.plain_time if form == "time" else implicit_attention.plain_tokens
        return plain(x, filters, bias, p, scale)

    return run


def case(b, n, d, q, r, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    shapes = ((b, n, d), (3 * r, q), (3 * r,), (r,))
    x, L, bias, p = (torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes)
    return [part.to(dtype).requires_grad_() for part in (x, L / q**0.5 * 3, bias, p)]


def results(run, leaves, scale, memory, seed=9):
    m = run(*leaves, scale, memory)
    dm = torch.randn(m.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(m.dtype)
    return [m, *torch.autograd.grad(m, leaves, dm)]


NAMES = ("m", "dx", "dL", "dbias", "dp")


def assert_near(got, want, bound, slack=None):
    """Within `bound` of the largest value, or within `slack`, one number for each result."""
    for i, (name, a, b) in enumerate(zip(NAMES, got, want, strict=True)):
        allowed = bound * b.abs().max().clamp(min=1e-3)
        assert (a.double() - b).abs().max() <= max(allowed, slack[i] if slack else 0), name


@pytest.mark.parametrize("form", ["torch", "time", "tokens"])
@given(data=st.data())
@settings(deadline=None, max_examples=12)
def test_torch_forms_equal_the_equations_in_float64(form, data):
    q, r = data.draw(st.integers(2, 12), "q"), data.draw(st.integers(1, 4), "r")
    b, n, d = data.draw(st.integers(1, 3), "b"), data.draw(st.integers(1, 70), "n"), data.draw(st.integers(1, 9), "d")
    memory, scale = LegendreMemory(q, data.draw(st.floats(q, 5 * q), "theta")), data.draw(st.sampled_from([1.0, 0.3]))
    leaves = case(b, n, d, q, r)
    assert_near(results(through(form), leaves, scale, memory), results(literal, leaves, scale, memory), 1e-10)


@needs_compiler
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_compiled_kernels_equal_the_equations_for_any_size(data):
    q, r = data.draw(st.integers(2, 12), "q"), data.draw(st.integers(1, 11), "r")
    b, n, d = data.draw(st.integers(1, 3), "b"), data.draw(st.integers(1, 90), "n"), data.draw(st.integers(1, 50), "d")
    keep, scale = data.draw(st.booleans(), "keep"), data.draw(st.sampled_from([1.0, 0.25]))
    memory = LegendreMemory(q, 3 * q)
    exact = results(literal, case(b, n, d, q, r), scale, memory)
    with processor(avx512=data.draw(st.booleans(), "avx512")):
        single = results(through("native", keep), case(b, n, d, q, r, dtype=torch.float32), scale, memory)
    # Sums of thousands of terms that cancel lose digits in any float32: as many as torch's own form may lose
    usual = results(through("tokens"), case(b, n, d, q, r, dtype=torch.float32), scale, memory)
    slack = [8 * (a.double() - e).abs().max() for a, e in zip(usual, exact, strict=True)]
    assert_near(single, exact, 1e-4, slack)


@needs_compiler
@pytest.mark.parametrize(("threads", "avx512"), [(1, True), (3, True), (2, False)])
def test_compiled_kernels_hold_at_the_papers_largest_size(threads, avx512):
    """d = 204, q = 250, q' = 25, n = 1024: within 5e-5 of float64."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    memory = LegendreMemory(250, 1000)
    exact = results(through("torch"), case(1, 1024, 204, 250, 25), 1 / 204**0.5, memory)
    with processor(avx512):
        single = results(through("native"), case(1, 1024, 204, 250, 25, dtype=torch.float32), 1 / 204**0.5, memory)
    torch.set_num_threads(before)
    assert_near(single, exact, 5e-5)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("n", [5, 21])
def test_hand_written_gradients_pass_gradcheck(keep, n):
    memory = LegendreMemory(5, 12)
    leaves = case(1, n, 2, 5, 2)
    assert torch.autograd.gradcheck(lambda *parts: through("torch", keep)(*parts, 0.7, memory), leaves)


@pytest.mark.parametrize("form", ["torch", pytest.param("native", marks=needs_compiler)])
def test_recomputing_gives_the_same_bits_as_keeping(form):
    memory, leaves = LegendreMemory(10, 40), case(3, 50, 20, 10, 3, dtype=torch.float32)
    kept, anew = (results(through(form, keep), leaves, 1.0, memory) for keep in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(kept, anew, strict=True))


@needs_compiler
@settings(deadline=None, max_examples=40)
@given(
    b=st.integers(1, 3), k=st.integers(1, 40), q=st.integers(1, 40), d=st.integers(1, 110), threads=st.integers(1, 3)
)
def test_the_product_of_a_step_equals_torchs_for_any_shape(b, k, q, d, threads):
    g = torch.Generator().manual_seed(k)
    onto, W, m = (torch.randn(shape, generator=g) for shape in ((b, k, d), (k, q), (b, q, d)))
    before, exact = torch.get_num_threads(), add_product(onto.double(), W.double(), m.double())
    torch.set_num_threads(threads)
    found = [lmu_kernels.add_product(part, W, m) for part in (onto, onto[:, :, :1])]
    torch.set_num_threads(before)
    torch.testing.assert_close(found[0].double(), exact, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found[1].double(), exact - onto.double() + onto[:, :, :1].double(), rtol=1e-5, atol=1e-4)


@needs_compiler
def test_a_sequence_hardly_depends_on_those_beside_it():
    """Two sequences share a transform where their channels fill an odd number of vectors."""
    memory, leaves = LegendreMemory(10, 40), case(5, 50, 20, 10, 3, dtype=torch.float32)
    together = through("native")(*leaves, 1.0, memory)
    for i in range(5):
        alone = through("native")(leaves[0][i : i + 1], *leaves[1:], 1.0, memory)
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-5, atol=1e-5)


@needs_compiler
@settings(max_examples=30, deadline=None)
@given(b=st.integers(1, 4), n=st.integers(1, 40), d=st.integers(1, 70), k=st.integers(1, 9), threads=st.integers(2, 8))
def test_threads_that_share_a_pair_of_vectors_give_what_one_gives(b, n, d, k, threads):
    """Work is cut anywhere between filters; two threads then add to the same gradients."""
    g = torch.Generator().manual_seed(n)
    filters, x = (torch.randn(shape, generator=g) for shape in ((k, n), (b, n, d)))
    before, found = torch.get_num_threads(), []
    for count in (1, threads):
        torch.set_num_threads(count)
        convolution = lmu_kernels.Convolution(filters, d)
        y, dx = convolution.empty(b).zero_(), torch.full_like(x, torch.nan)
        convolution.forward(x, y)
        convolution.backward(x, y, dx)
        found.append((y, dx, convolution.filter_gradient()))
    torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    for one, several in zip(*found, strict=True):
        torch.testing.assert_close(several, one, rtol=1e-4, atol=1e-5 * float(one.abs().max()))


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_compiled_kernels_repeat_bit_for_bit(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    memory, leaves = LegendreMemory(10, 40), case(4, 100, 20, 10, 3, dtype=torch.float32)
    first, second = (results(through("native"), leaves, 1.0, memory) for _ in range(2))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@needs_compiler
def test_compiled_kernels_survive_extreme_pre_activations():
    memory = LegendreMemory(4, 16)
    x, L, bias, p = case(1, 40, 8, 4, 3, dtype=torch.float32)
    for size in (0.0, 1e2, 1e6):
        got = results(through("native"), [x, (L * size).detach().requires_grad_(), bias, p], 1.0, memory)
        assert all(torch.isfinite(part).all() for part in got)


@needs_compiler
def test_gelu_and_softmax_of_the_kernels_match_torch_over_their_range():
    """A memory of order 1 fed by a unit pulse makes y = bias: a scan over gelu's range through the whole kernel."""
    memory = LegendreMemory(1, 4)
    for level in torch.linspace(-8, 8, 33).tolist():
        leaves = case(1, 16, 4, 1, 1, dtype=torch.float32)
        leaves[2] = torch.full((3,), level, requires_grad=True)
        exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
        got, want = (results(run, parts, 1.0, memory) for run, parts in ((through("native"), leaves), (literal, exact)))
        assert (got[0].double() - want[0]).abs().max() < 3e-6 * max(1.0, abs(level)), level


@needs_compiler
def test_model_with_and_without_compiled_kernels_agrees():
    spec = resolve("lmu", 32, 64, 50)
    ids = torch.randint(0, 50, (2, 64))
    fast, slow = build(spec, seed=1, compile="on"), build(spec, seed=1, compile="off")
    torch.testing.assert_close(fast(ids), slow(ids), atol=2e-6, rtol=1e-4)


@needs_compiler
def test_a_library_for_processors_without_avx512_has_eight_lanes():
    assert native.load_library(avx512=False).lmu_lanes() == 8
    assert native.load_library().lmu_lanes() == (16 if native.vectors() else 8)


@needs_compiler
def test_the_library_is_built_once_and_found_again(tmp_path):
    compiler = "cc"
    first = native.compile_library(compiler, tmp_path)
    stamp = first.stat().st_mtime_ns
    assert native.compile_library(compiler, tmp_path) == first
    assert first.stat().st_mtime_ns == stamp
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


WITHOUT_TORCH = """
import ctypes, sys
import numpy as np
assert not hasattr(ctypes.CDLL(None), "GOMP_parallel"), "OpenMP is here: this would not test what it should"
library = ctypes.CDLL(sys.argv[1])
library.lmu_head.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 2 + [ctypes.c_int] * 4
rng = np.random.default_rng(0)
h, w = (rng.normal(size=shape).astype(np.float32) for shape in ((50, 8), (500, 8)))
found = []
for threads in (1, 3):
    out = [np.zeros(shape, np.float32) for shape in (50, 50, h.shape, w.shape)]
    assert library.lmu_head(*(part.ctypes.data for part in (h, w, *out)), 50, 500, 8, 0, 1, threads) == 0
    found.append(out)
for one, three in zip(*found):
    np.testing.assert_array_equal(three, one)
exact = np.log(np.exp(h.astype(float) @ w.T.astype(float)).sum(1))
np.testing.assert_allclose(np.log(found[1][0]) + found[1][1], exact, rtol=1e-5)
"""


@needs_compiler
def test_kernels_make_threads_of_their_own_where_torch_has_none_for_them(tmp_path):
    library = native.compile_library("cc", tmp_path)
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_compiler
@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_rounding_at_most(threads):
    """Batches that the threads cannot share evenly, kept and recomputed."""
    spec = resolve("lmu", 24, 40, 20, blocks=1)
    x = torch.randn(5, 40, 24, generator=torch.Generator().manual_seed(0), requires_grad=True)
    before = torch.get_num_threads()
    for recompute in (False, True):
        layer = build(spec, seed=0, compile="on", recompute=recompute).layers[1]
        found = []
        for count in (1, threads):
            torch.set_num_threads(count)
            try:
                found.append(torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()]))
            finally:
                torch.set_num_threads(before)
        for one, several in zip(*found, strict=True):
            torch.testing.assert_close(several, one, rtol=1e-4, atol=1e-5)


def test_a_compiler_that_fails_is_not_an_error(tmp_path):
    broken = tmp_path / "cc"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo broken && exit 0\nexit 1\n')
    broken.chmod(0o755)
    assert native.compile_library(str(broken), tmp_path / "cache") is None
    assert native.compile_library(str(tmp_path / "absent"), tmp_path / "cache") is None


def test_without_a_compiler_it_runs_in_torch_and_says_so_once():
    code = (
        "import torch; from lmu_scaling.models import resolve; from lmu_scaling.models.network import build\n"
        "for seed in (1, 2):\n"
        "    model = build(resolve('lmu', 16, 32, 20), seed=seed)\n"
        "    model(torch.zeros(1, 32, dtype=torch.long)).sum().backward()\n"
    )
    environment = {"LMU_SCALING_NATIVE": "0", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.count("no C compiler") == 1


@pytest.mark.parametrize("variant", ["lmu", "transformer", "lstm"])
def test_insisting_on_a_compiler_that_is_missing_is_explained(monkeypatch, variant):
    monkeypatch.setattr(native, "kernels", lambda: None)
    with pytest.raises(ModelError, match="no C compiler"):
        build(resolve(variant, 16, 32, 20), compile="on")
    assert build(resolve(variant, 16, 32, 20), compile="auto")


@pytest.mark.parametrize("compile", ["off", pytest.param("on", marks=needs_compiler)])
def test_recomputation_holds_less_than_a_sixth_of_the_activations(compile):
    """Counted by autograd's own hooks: bytes saved for backward, parameters aside, against the plain reduced form."""
    spec = resolve("lmu", 48, 256, 20, q=100, q_reduced=10, blocks=1)
    layer = build(spec, seed=0, compile=compile, recompute=True).layers[1]
    x = torch.randn(2, 256, 48, requires_grad=True)

    def held(run):
        seen = {}

        def pack(tensor):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = run()
        del out
        return sum(seen.values())

    def plain():
        filters = layer.memory.filters(256, torch.float32, x.device, layer.L.flatten(0, 1))
        return implicit_attention.plain_tokens(x, filters, layer.bias.flatten(), layer.p, 1.0)

    assert held(lambda: layer(x)) * 6 <= held(plain)
