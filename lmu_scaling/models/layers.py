"""The sub-layers of all variants, each with a parallel form and a step for generation (paper, section 4).

A layer is made from a `ModelSpec`. It maps x [b, n, d] to [b, n, d]; `step` maps one token x [b, d] and a state.
Norms, skips and dropout belong to the network around it.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmu_scaling.models.architecture import ModelSpec
from lmu_scaling.models.fused import lmu_attention
from lmu_scaling.models.implicit import attend_tokens
from lmu_scaling.models.lmu import LegendreMemory, MemoryState, computing_dtype, full_precision


def glorot_(weight: Tensor, generator: torch.Generator | None) -> None:
    nn.init.xavier_uniform_(weight, generator=generator)


class Layer(nn.Module, abc.ABC):
    """What the network asks of a sub-layer."""

    @abc.abstractmethod
    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw all parameters, in a fixed order."""

    @abc.abstractmethod
    def forward(self, x_bnd: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def initial_state(self, batch: int, device: torch.device | None) -> Any: ...

    @abc.abstractmethod
    def step(self, x_bd: Tensor, state: Any) -> tuple[Tensor, Any]: ...


class FeedForward(Layer):
    """y = gelu(x W₁ + b₁) W₂ + b₂ (eq. 11)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.ffn is not None
        self.inner = nn.Linear(spec.d, spec.ffn)
        self.outer = nn.Linear(spec.ffn, spec.d)

    def initialise(self, generator: torch.Generator | None) -> None:
        for linear in (self.inner, self.outer):
            glorot_(linear.weight, generator)
            nn.init.zeros_(linear.bias)

    def forward(self, x_bnd: Tensor) -> Tensor:
        return self.outer(F.gelu(self.inner(x_bnd)))

    def initial_state(self, batch: int, device: torch.device | None) -> None:
        return None

    def step(self, x_bd: Tensor, state: None) -> tuple[Tensor, None]:
        return self.forward(x_bd), None


class LMU(Layer):
    """The memory and implicit self-attention on it (eqs. 1–10): L_i with one q'-vector of biases each, and p."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.q is not None
        assert spec.q_reduced is not None
        assert spec.theta is not None
        self.memory = LegendreMemory(spec.q, spec.theta)
        self.L = nn.Parameter(torch.empty(3, spec.q_reduced, spec.q))
        self.bias = nn.Parameter(torch.empty(3, spec.q_reduced))
        self.p = nn.Parameter(torch.empty(spec.q_reduced))
        self.d = spec.d
        self.scale = 1 / math.sqrt(spec.d) if spec.softmax_scale == "sqrt_d" else 1.0
        self.compiled, self.keep = False, True

    def initialise(self, generator: torch.Generator | None) -> None:
        for L_iq in self.L.data:
            glorot_(L_iq, generator)
        nn.init.zeros_(self.bias)
        glorot_(self.p.data[None], generator)

    def forward(self, x_bnd: Tensor) -> Tensor:
        dtype = computing_dtype(x_bnd)
        with full_precision(x_bnd):
            L_kq, bias_k, p_i = self.L.to(dtype).flatten(0, 1), self.bias.to(dtype).flatten(), self.p.to(dtype)
            filters_kn = self.memory.filters(x_bnd.shape[1], dtype, x_bnd.device, L_kq)
            return lmu_attention(
                x_bnd.to(dtype), filters_kn, bias_k, p_i, self.scale, compiled=self.compiled, keep=self.keep
            )

    def initial_state(self, batch: int, device: torch.device | None) -> MemoryState:
        return self.memory.initial_state(batch, self.d, computing_dtype(self.L), device)

    def step(self, x_bd: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
        m_bqd, state = self.memory.step(x_bd, state)
        with full_precision(x_bd):
            L_kq, bias_k = self.L.to(m_bqd.dtype).flatten(0, 1), self.bias.to(m_bqd.dtype).flatten()
            y_bkd = torch.baddbmm(bias_k[:, None], L_kq.expand(len(m_bqd), -1, -1), m_bqd)
            return attend_tokens(y_bkd, self.p.to(m_bqd.dtype), self.scale), state


class GlobalAttention(Layer):
    """Causal multi-head self-attention over the sequence, scaled by 1/√d_h, with biases."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.heads is not None
        self.heads = spec.heads
        self.qkv = nn.Linear(spec.d, 3 * spec.d)
        self.out = nn.Linear(spec.d, spec.d)

    def initialise(self, generator: torch.Generator | None) -> None:
        for weight in self.qkv.weight.data.chunk(3):
            glorot_(weight, generator)
        glorot_(self.out.weight, generator)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def _split(self, x_bnd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, n, d = x_bnd.shape
        Q, K, V = self.qkv(x_bnd).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return Q, K, V

    def forward(self, x_bnd: Tensor) -> Tensor:
        Q_bhne, K_bhne, V_bhne = self._split(x_bnd)
        mixed_bhne = F.scaled_dot_product_attention(Q_bhne, K_bhne, V_bhne, is_causal=True)
        return self.out(mixed_bhne.transpose(1, 2).reshape(x_bnd.shape))

    def initial_state(self, batch: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
        empty = self.qkv.weight.new_empty(batch, self.heads, 0, self.out.in_features // self.heads, device=device)
        return empty, empty

    def step(self, x_bd: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The keys and values of all tokens so far are the state: it grows, as Table 1 says."""
        Q_bh1e, K_bh1e, V_bh1e = self._split(x_bd[:, None])
        K_bhne = torch.cat([state[0], K_bh1e.to(state[0].dtype)], dim=2)
        V_bhne = torch.cat([state[1], V_bh1e.to(state[1].dtype)], dim=2)
        mixed_bh1e = F.scaled_dot_product_attention(Q_bh1e.to(K_bhne.dtype), K_bhne, V_bhne)
        return self.out(mixed_bh1e.reshape(x_bd.shape)), (K_bhne, V_bhne)


class LSTM(Layer):
    """One LSTM layer of width d with torch's two bias vectors. The forget gates start open (bias 1)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.cell = nn.LSTM(spec.d, spec.d, batch_first=True)

    def initialise(self, generator: torch.Generator | None) -> None:
        of = self.cell.get_parameter
        for name in ("weight_ih_l0", "weight_hh_l0"):
            for gate in of(name).data.chunk(4):
                glorot_(gate, generator)
        nn.init.zeros_(of("bias_hh_l0"))
        for index, gate in enumerate(of("bias_ih_l0").data.chunk(4)):  # input, forget, cell, output
            nn.init.constant_(gate, 1.0 if index == 1 else 0.0)

    def forward(self, x_bnd: Tensor) -> Tensor:
        return self.cell(x_bnd)[0]

    def initial_state(self, batch: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
        zeros = self.cell.get_parameter("weight_hh_l0").new_zeros(1, batch, self.cell.hidden_size, device=device)
        return zeros, zeros

    def step(self, x_bd: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y_b1d, state = self.cell(x_bd[:, None], state)
        return y_b1d[:, 0], state
