"""The Legendre Memory Unit in PyTorch (paper, section 2 and appendix A.1). Needs torch, numpy and scipy, nothing else.

The memory is a linear system that projects a sliding window of its input, theta steps long, onto q Legendre
polynomials, for each of d channels. All forms below compute the same thing:

    memory = LegendreMemory(q=60, theta=240)
    m_bnqd = memory(x_bnd)                        # parallel, by FFT (eqs. 5–7)
    m_bnqd = memory(x_bnd, form="recurrent")      # one step at a time (eq. 1); "direct" is eq. 4
    y_bnkd = memory(x_bnd, L_kq)                  # reduced order: L·M, without ever forming M (appendix A.1)
    state = memory.initial_state(batch, d)
    m_bqd, state = memory.step(x_bd, state)       # streaming in constant memory

Axes: b batch, n time, d channel, q order of the memory, k row of L, f frequency.
A step's output includes that step's input. The input may have any length; sequences before the first step are zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.fft
import scipy.linalg
import torch
from torch import Tensor, nn

FORMS = ("fft", "direct", "recurrent")


# The system, in float64 (eqs. 2–5) -------------------------------------------------------------------------------


def matrices(q: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """A [q, q] and B [q, 1] of the continuous system (eqs. 2 and 3; i and j count from 0)."""
    i = np.arange(q)[:, None]
    j = np.arange(q)[None, :]
    gain = (2 * i + 1) / theta
    A_qq = gain * np.where(i < j, -1.0, np.where((i - j) % 2 == 0, -1.0, 1.0))
    B_q1 = gain * np.where(i % 2 == 0, 1.0, -1.0)
    return A_qq, B_q1


def discretise(A_qq: np.ndarray, B_q1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zero-order hold with dt = 1: Ā = e^A, B̄ = A⁻¹(e^A − I)B (below eq. 1).

    Both are blocks of the exponential of [[A, B], [0, 0]], which spares the inverse.
    """
    q = A_qq.shape[0]
    block = np.zeros((q + 1, q + 1))
    block[:q, :q], block[:q, q:] = A_qq, B_q1
    exponential = scipy.linalg.expm(block)
    return exponential[:q, :q], exponential[:q, q:]


class Impulse:
    """Ā, B̄ and the impulse response H = [B̄, ĀB̄, Ā²B̄, …] (eq. 5), in float64; H grows when more of it is asked for."""

    def __init__(self, q: int, theta: float) -> None:
        if not 1 <= q <= theta:
            raise ValueError(
                f"need 1 <= q <= theta: a window of theta = {theta} steps cannot hold q = {q} degrees of freedom"
            )
        self.q, self.theta = q, theta
        self.A_qq, self.B_q1 = discretise(*matrices(q, theta))
        self._H_nq = self.B_q1.T.copy()
        self._casts: dict[tuple[str, int, torch.dtype, torch.device], Tensor] = {}

    def response(self, n: int) -> np.ndarray:
        """H [q, n] by the recursion h_t = Ā h_{t−1}: as stable as the recurrence itself."""
        known = len(self._H_nq)
        if n > known:
            more_nq = np.empty((n, self.q))
            more_nq[:known] = self._H_nq
            for t in range(known, n):
                more_nq[t] = self.A_qq @ more_nq[t - 1]
            self._H_nq = more_nq
        return self._H_nq[:n].T

    def tensor(self, name: str, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A (Ā), B (B̄) or the first `size` columns of H; cast once and shared by all layers of equal q and theta."""
        key = (name, size, dtype, device)
        if key not in self._casts:
            kept = [old for old in self._casts if old[0] == name]
            if len(kept) >= 8:  # generation of many lengths must not fill the memory
                del self._casts[kept[0]]
            with torch.inference_mode(False):  # made while generating, it must serve training as well
                self._casts[key] = torch.from_numpy(self._array(name, size)).to(dtype=dtype, device=device)
        return self._casts[key]

    def _array(self, name: str, size: int) -> np.ndarray:
        if name == "H":
            return np.ascontiguousarray(self.response(size))
        return {"A": self.A_qq, "B": self.B_q1}[name]


@lru_cache(maxsize=64)
def impulse(q: int, theta: float) -> Impulse:
    return Impulse(q, theta)


# Causal convolution of every channel with every filter -----------------------------------------------------------


def transform_length(n: int) -> int:
    """Zero-padded so that the circular convolution is a causal one; the paper's 2n when n is a power of two."""
    return scipy.fft.next_fast_len(2 * n - 1, real=True)


class FFTConvolution(torch.autograd.Function):
    """y[k, d, t] = Σ_s F[k, t−s] x[s, d] by FFT (eq. 7, in natural order: eq. 6 reverses x, which is not causal).

    One rfft of x serves all filters; one set of rffts of dy serves both gradients. On the CPU each sequence is
    transformed by itself, so that it stays in cache; there the product buffers are reused.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x_bdn: Tensor, filters_kn: Tensor) -> Tensor:
        n = x_bdn.shape[-1]
        size = transform_length(n)
        X_bdf = torch.fft.rfft(x_bdn, n=size)
        F_kf = torch.fft.rfft(filters_kn, n=size)
        ctx.save_for_backward(X_bdf, F_kf)
        ctx.n, ctx.size = n, size  # type: ignore[attr-defined]
        if x_bdn.device.type != "cpu":
            return torch.fft.irfft(X_bdf[:, None] * F_kf[:, None], n=size)[..., :n]
        y_bkdn = x_bdn.new_empty(x_bdn.shape[0], len(filters_kn), *x_bdn.shape[1:])
        product_kdf = X_bdf.new_empty(len(filters_kn), *X_bdf.shape[1:])
        for y_kdn, X_df in zip(y_bkdn, X_bdf, strict=True):
            torch.mul(X_df, F_kf[:, None], out=product_kdf)
            y_kdn.copy_(torch.fft.irfft(product_kdf, n=size)[..., :n])
        return y_bkdn

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (dy_bkdn,) = grads
        X_bdf, F_kf = ctx.saved_tensors  # type: ignore[attr-defined]
        n, size = ctx.n, ctx.size  # type: ignore[attr-defined]
        conj_F_k1f = F_kf.conj().resolve_conj()[:, None]
        conj_X_bdf = X_bdf.conj()
        dX_bdf, dF_kf = torch.empty_like(X_bdf), torch.zeros_like(F_kf)
        for b in range(len(dy_bkdn)):
            dY_kdf = torch.fft.rfft(dy_bkdn[b], n=size)
            dX_bdf[b] = (dY_kdf * conj_F_k1f).sum(0)
            dF_kf += dY_kdf.mul_(conj_X_bdf[b]).sum(1)
        return torch.fft.irfft(dX_bdf, n=size)[..., :n], torch.fft.irfft(dF_kf, n=size)[..., :n]


def convolve_fft(x_bdn: Tensor, filters_kn: Tensor) -> Tensor:
    return FFTConvolution.apply(x_bdn, filters_kn)


def convolve_direct(x_bdn: Tensor, filters_kn: Tensor) -> Tensor:
    """The sum of eq. 4 itself, O(n²): the appendix's "raw convolution"."""
    b, d, n = x_bdn.shape
    padded = nn.functional.pad(x_bdn.reshape(b * d, 1, n), (n - 1, 0))
    return nn.functional.conv1d(padded, filters_kn.flip(1)[:, None]).view(b, d, -1, n).transpose(1, 2)


# The memory ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryState:
    """What the memory carries from step to step: m [b, q, d]. Its size does not depend on how much was read."""

    m_bqd: Tensor


def full_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Autocast off: what follows is computed in the dtype it is given. The meta device has none to switch off."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else contextlib.nullcontext()


def computing_dtype(x: Tensor) -> torch.dtype:
    """Half precision has neither FFTs on the CPU nor enough digits for H."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


AddProduct = Callable[[Tensor, Tensor, Tensor], Tensor]


def add_product(onto_bkd: Tensor, W_kq: Tensor, m_bqd: Tensor) -> Tensor:
    """onto + W m, for every sequence."""
    return torch.baddbmm(onto_bkd, W_kq.expand(len(m_bqd), -1, -1), m_bqd)


class LegendreMemory(nn.Module):
    """The memory of order q over a window of theta steps. It has no parameters, and nothing of it is saved."""

    def __init__(self, q: int, theta: float) -> None:
        super().__init__()
        self.q, self.theta = q, theta
        self.system = impulse(q, theta)

    def forward(self, x_bnd: Tensor, L_kq: Tensor | None = None, form: str = "fft") -> Tensor:
        """M [b, n, q, d] for every step, or L·M [b, n, k, d]."""
        if form not in FORMS:
            raise ValueError(f"unknown form {form!r}; use one of {', '.join(FORMS)}")
        dtype = computing_dtype(x_bnd)
        with full_precision(x_bnd):
            x_bdn = x_bnd.to(dtype).transpose(1, 2)
            L = None if L_kq is None else L_kq.to(dtype)
            if form == "recurrent":
                return self._recurrent(x_bdn, L)
            filters_kn = self.filters(x_bnd.shape[1], dtype, x_bnd.device, L)
            return (convolve_fft if form == "fft" else convolve_direct)(x_bdn, filters_kn).permute(0, 3, 1, 2)

    def filters(self, n: int, dtype: torch.dtype, device: torch.device, L_kq: Tensor | None = None) -> Tensor:
        """H, or H̃ = L·H (appendix A.1), over n steps."""
        H_qn = self.system.tensor("H", n, dtype, device)
        return H_qn if L_kq is None else L_kq @ H_qn

    def initial_state(
        self, batch: int, d: int, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> MemoryState:
        return MemoryState(torch.zeros(batch, self.q, d, dtype=dtype, device=device))

    def step(
        self, x_bd: Tensor, state: MemoryState, add_product: AddProduct = add_product
    ) -> tuple[Tensor, MemoryState]:
        """m_t = Ā m_{t−1} + B̄ x_t (eq. 1)."""
        old_bqd = state.m_bqd
        A_qq, B_q1 = (self.system.tensor(name, 0, old_bqd.dtype, old_bqd.device) for name in "AB")
        with full_precision(old_bqd):
            arriving_bqd = B_q1 * x_bd.to(old_bqd.dtype)[:, None]
            m_bqd = add_product(arriving_bqd, A_qq, old_bqd)
        return m_bqd, MemoryState(m_bqd)

    def _recurrent(self, x_bdn: Tensor, L_kq: Tensor | None) -> Tensor:
        b, d, n = x_bdn.shape
        state = self.initial_state(b, d, x_bdn.dtype, x_bdn.device)
        outputs = []
        for t in range(n):
            m_bqd, state = self.step(x_bdn[..., t], state)
            outputs.append(m_bqd if L_kq is None else L_kq @ m_bqd)
        return torch.stack(outputs, dim=1)
