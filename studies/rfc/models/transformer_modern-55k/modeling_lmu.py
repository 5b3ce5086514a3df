"""The language models of `lmu-scaling` for Hugging Face transformers; needs torch and transformers, nothing else.

    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("<|endoftext|>The state of the Union", return_tensors="pt")
    print(tokenizer.decode(model.generate(**ids, max_new_tokens=50)[0]))

A prompt is read in parallel (by FFT); then `generate()` carries a recurrent state instead of a key-value cache. For LMU
and LSTM layers it has a constant size; layers with global attention keep the keys and values of all tokens.

Axes: b batch, n time, d channel, q order of the memory, k = 3q' rows of Q, K and V, h head, e channel of a head.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_lmu import LMUConfig


class RecurrentState:
    """What generation carries from token to token: a tuple of tensors per sub-layer, and the tokens read per row."""

    is_compileable = False

    def __init__(self, layers: list[tuple[Tensor, ...]], lengths_b: Tensor) -> None:
        self.layers, self.lengths_b = layers, lengths_b

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.lengths_b.max())

    def reorder_cache(self, beam_idx: Tensor) -> RecurrentState:
        """Choose rows of the batch, for beam search."""
        self.layers = [tuple(part.index_select(0, beam_idx) for part in layer) for layer in self.layers]
        self.lengths_b = self.lengths_b.index_select(0, beam_idx)
        return self

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return sum(part.numel() for layer in self.layers for part in layer)


class FeedForward(nn.Module):
    """y = gelu(x W₁ + b₁) W₂ + b₂; no state."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.intermediate_size)
        self.outer = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x_bnd: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.outer(F.gelu(self.inner(x_bnd))), ()

    def step(self, x_bd: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.outer(F.gelu(self.inner(x_bd))), state


class GatedFeedForward(nn.Module):
    """y = (silu(x W₁) ⊙ x W₂) W₃; no state."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.outer = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_bnd: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        gate, value = self.inner(x_bnd).chunk(2, dim=-1)
        return self.outer(F.silu(gate) * value), ()

    def step(self, x_bd: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.forward(x_bd)[0], state


def rotate(x_bhne: Tensor, positions_bn: Tensor) -> Tensor:
    """Rotary positions: pair (i, i + ⌊e/2⌋) of a head turns by position · 10000^(−2i/e)."""
    e = x_bhne.shape[-1]
    rates = 10_000.0 ** (-torch.arange(0, e - 1, 2, dtype=torch.float64, device=x_bhne.device) / e)
    angles = positions_bn.double()[:, None, :, None] * rates
    cosine, sine = angles.cos().to(x_bhne.dtype), angles.sin().to(x_bhne.dtype)
    first, second, rest = x_bhne.split([e // 2, e // 2, e % 2], dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine, rest], dim=-1)


class GlobalAttention(nn.Module):
    """Causal self-attention. State: keys, values, and which of them are tokens (rows may differ in length)."""

    def __init__(self, config: Any, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.rotary = config.num_attention_heads, config.positions == "rotary"
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=bias)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)

    def normalise(self, Q_bhne: Tensor, K_bhne: Tensor) -> tuple[Tensor, Tensor]:
        return Q_bhne, K_bhne

    def _split(self, x_bnd: Tensor, positions_bn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, n, d = x_bnd.shape
        Q, K, V = self.qkv(x_bnd).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        Q, K = self.normalise(Q, K)
        return (rotate(Q, positions_bn), rotate(K, positions_bn), V) if self.rotary else (Q, K, V)

    def forward(self, x_bnd: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        Q_bhne, K_bhne, V_bhne = self._split(x_bnd, torch.arange(x_bnd.shape[1], device=x_bnd.device)[None])
        mixed_bhne = F.scaled_dot_product_attention(Q_bhne, K_bhne, V_bhne, is_causal=True)
        valid_bn = torch.ones(x_bnd.shape[:2], dtype=torch.bool, device=x_bnd.device)
        return self.out(mixed_bhne.transpose(1, 2).reshape(x_bnd.shape)), (K_bhne, V_bhne, valid_bn)

    def step(self, x_bd: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        Q_bh1e, K_bh1e, V_bh1e = self._split(x_bd[:, None], state[2].sum(1)[:, None])
        K_bhne, V_bhne = torch.cat([state[0], K_bh1e], dim=2), torch.cat([state[1], V_bh1e], dim=2)
        valid_bn = F.pad(state[2], (0, 1), value=True)
        mixed = F.scaled_dot_product_attention(Q_bh1e, K_bhne, V_bhne, attn_mask=valid_bn[:, None, None])
        return self.out(mixed.reshape(x_bd.shape)), (K_bhne, V_bhne, valid_bn)


class QKNormAttention(GlobalAttention):
    """With RMSNorm over each head's queries and keys, without biases."""

    def __init__(self, config: Any) -> None:
        super().__init__(config, bias=False)
        width = config.hidden_size // self.heads
        self.norm_q, self.norm_k = (nn.RMSNorm(width, config.norm_eps) for _ in range(2))

    def normalise(self, Q_bhne: Tensor, K_bhne: Tensor) -> tuple[Tensor, Tensor]:
        return self.norm_q(Q_bhne), self.norm_k(K_bhne)


class LSTM(nn.Module):
    """One LSTM layer. State: h and c."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.cell = nn.LSTM(config.hidden_size, config.hidden_size, batch_first=True)

    def forward(self, x_bnd: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        y_bnd, (h_1bd, c_1bd) = self.cell(x_bnd)
        return y_bnd, (h_1bd[0], c_1bd[0])

    def step(self, x_bd: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        y_b1d, (h_1bd, c_1bd) = self.cell(x_bd[:, None], (state[0][None], state[1][None]))
        return y_b1d[:, 0], (h_1bd[0], c_1bd[0])


@functools.lru_cache(maxsize=16)
def memory_system(q: int, theta: float) -> tuple[Tensor, Tensor]:
    """Ā [q, q] and B̄ [q, 1] of the Legendre memory, in float64: zero-order hold with dt = 1 (equations 1 to 3)."""
    i = torch.arange(q, dtype=torch.float64)[:, None]
    j = torch.arange(q, dtype=torch.float64)[None]
    gain = (2 * i + 1) / theta
    sign = torch.where((i < j) | ((i - j) % 2 == 0), -1.0, 1.0).double()
    block = torch.zeros(q + 1, q + 1, dtype=torch.float64)
    block[:q, :q], block[:q, q:] = gain * sign, gain * torch.where(i % 2 == 0, 1.0, -1.0).double()
    block = torch.linalg.matrix_exp(block)
    return block[:q, :q], block[:q, q:]


@functools.lru_cache(maxsize=16)
def impulse_response(q: int, theta: float, n: int) -> Tensor:
    """H = [B̄, ĀB̄, Ā²B̄, …] [q, n], in float64 (equation 5)."""
    A_qq, B_q1 = memory_system(q, theta)
    columns = [B_q1]
    for _ in range(n - 1):
        columns.append(A_qq @ columns[-1])
    return torch.cat(columns, dim=1)


class LMU(nn.Module):
    """Legendre memory with implicit self-attention (equations 1 to 10), in float32. State: the memory [b, q, d]."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.q, self.theta = config.order, config.theta
        self.L = nn.Parameter(torch.empty(3, config.reduced_order, config.order))
        self.bias = nn.Parameter(torch.empty(3, config.reduced_order))
        self.p = nn.Parameter(torch.empty(config.reduced_order))
        self.scale = 1 / math.sqrt(config.hidden_size) if config.softmax_scale == "sqrt_d" else 1.0

    def forward(self, x_bnd: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        n, x_bdn = x_bnd.shape[1], x_bnd.float().transpose(1, 2)
        H_qn = impulse_response(self.q, float(self.theta), n).to(x_bdn)
        filters_kn, size = self.L.float().flatten(0, 1) @ H_qn, 2 ** math.ceil(math.log2(2 * n))
        product_bkdf = torch.fft.rfft(x_bdn, size)[:, None] * torch.fft.rfft(filters_kn, size)[:, None]
        y_bkdn = torch.fft.irfft(product_bkdf, size)[..., :n]
        m_bqd = torch.einsum("qn,bdn->bqd", H_qn.flip(1), x_bdn)  # the memory after the last token
        return self._attend(y_bkdn.permute(0, 3, 1, 2)).to(x_bnd.dtype), (m_bqd,)

    def step(self, x_bd: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        A_qq, B_q1 = (part.to(state[0]) for part in memory_system(self.q, float(self.theta)))
        m_bqd = A_qq @ state[0] + B_q1 * x_bd.float()[:, None]
        return self._attend(self.L.float().flatten(0, 1) @ m_bqd).to(x_bd.dtype), (m_bqd,)

    def _attend(self, y_kd: Tensor) -> Tensor:
        Q_id, K_jd, V_jd = F.gelu(y_kd + self.bias.float().flatten()[:, None]).chunk(3, dim=-2)
        A_ij = torch.softmax(self.scale * (Q_id @ K_jd.transpose(-1, -2)), dim=-1)
        return ((self.p.float() @ A_ij).unsqueeze(-2) @ V_jd).squeeze(-2)


SUBLAYERS = {
    "ffn": FeedForward,
    "ffn_gated": GatedFeedForward,
    "attention": GlobalAttention,
    "attention_qk_norm": QKNormAttention,
    "lstm": LSTM,
    "lmu": LMU,
}


def norm(kind: str, d: int, eps: float) -> nn.Module:
    return nn.RMSNorm(d, eps) if kind == "rms" else nn.LayerNorm(d, eps, elementwise_affine=kind == "layer")


class LMUForCausalLM(PreTrainedModel, GenerationMixin):
    """x ← x + f(norm(x)) for each sub-layer f, a final norm, and the embedding as head."""

    config_class = LMUConfig
    _is_stateful = True
    _no_split_modules = ["LMU"]  # noqa: RUF012

    def __init__(self, config: LMUConfig) -> None:
        super().__init__(config)
        d = config.hidden_size
        self.embed = nn.Embedding(config.vocab_size, d)
        learned = config.positions == "learned"
        self.positions = nn.Parameter(torch.empty(config.max_position_embeddings, d)) if learned else None
        names = [name for _ in range(config.num_blocks) for name in config.sublayers]
        self.layers = nn.ModuleList([SUBLAYERS[name](config) for name in names])
        self.norms = nn.ModuleList([norm(config.norm, d, config.norm_eps) for _ in range(len(names) + 1)])
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Only for training from scratch; lmu-scaling has the initialisation that was studied."""
        for parameter in module.parameters(recurse=False):
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif not isinstance(module, nn.LayerNorm | nn.RMSNorm):
                nn.init.zeros_(parameter)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embed = value

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: RecurrentState | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        if past_key_values is not None:
            hidden_bnd, state = self._steps(input_ids, past_key_values)
        elif attention_mask is not None and attention_mask.dim() == 2 and not bool(attention_mask.all()):
            hidden_bnd, state = self._padded(input_ids, attention_mask.bool())
        else:
            hidden_bnd, state = self._parallel(input_ids)
        logits_bnv = F.linear(hidden_bnd[:, -logits_to_keep if logits_to_keep else 0 :], self.embed.weight)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits_bnv[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        keep = self.config.use_cache if use_cache is None else use_cache
        return CausalLMOutputWithPast(loss=loss, logits=logits_bnv, past_key_values=state if keep else None)

    def _parallel(self, ids_bn: Tensor) -> tuple[Tensor, RecurrentState]:
        """All tokens at once, and the state after the last one."""
        b, n = ids_bn.shape
        x_bnd = self.config.embedding_scale * self.embed(ids_bn)
        if self.positions is not None:
            x_bnd = x_bnd + self._positions(torch.arange(n, device=ids_bn.device))
        states = []
        for norm, layer in zip(self.norms, self.layers, strict=False):
            y_bnd, state = layer(norm(x_bnd))
            x_bnd = x_bnd + y_bnd
            states.append(state)
        return self.norms[-1](x_bnd), RecurrentState(states, torch.full((b,), n, device=ids_bn.device))

    def _steps(self, ids_bn: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """One token after the other, from a state."""
        hidden = []
        for ids_b in ids_bn.unbind(1):
            x_bd = self.config.embedding_scale * self.embed(ids_b)
            if self.positions is not None:
                x_bd = x_bd + self._positions(state.lengths_b)
            states = []
            for norm, layer, old in zip(self.norms, self.layers, state.layers, strict=False):
                y_bd, new = layer.step(norm(x_bd), old)  # type: ignore[operator]
                x_bd = x_bd + y_bd
                states.append(new)
            state = RecurrentState(states, state.lengths_b + 1)
            hidden.append(self.norms[-1](x_bd))
        return torch.stack(hidden, dim=1), state

    def _padded(self, ids_bn: Tensor, mask_bn: Tensor) -> tuple[Tensor, RecurrentState]:
        """Rows of different lengths, each read without its padding: padding may not enter a state."""
        hidden_bnd = self.embed.weight.new_zeros(*ids_bn.shape, self.config.hidden_size)
        states = []
        for row, (ids_n, mask_n) in enumerate(zip(ids_bn, mask_bn, strict=True)):
            hidden, state = self._parallel(ids_n[mask_n][None])
            hidden_bnd[row, mask_n] = hidden[0]
            states.append(state)
        longest = max(int(state.lengths_b) for state in states)
        layers = [
            tuple(torch.cat([_lengthened(part, longest) for part in parts]) for parts in zip(*layer, strict=True))
            for layer in zip(*(state.layers for state in states), strict=True)
        ]
        return hidden_bnd, RecurrentState(layers, torch.cat([state.lengths_b for state in states]))

    def _positions(self, index: Tensor) -> Tensor:
        assert self.positions is not None
        if int(index.max()) >= self.config.max_position_embeddings:
            raise ValueError(f"this model has learned positions for {self.config.max_position_embeddings} tokens only")
        return self.positions[index]

    # ------------------------------------------------------------------------------------------------- generate()
    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: Any = None, attention_mask: Tensor | None = None, **others: Any
    ) -> dict[str, Any]:
        keep = others.get("use_cache", True)
        if past_key_values is not None:
            return {"input_ids": input_ids[:, -1:], "past_key_values": past_key_values, "use_cache": keep}
        return {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": keep, "logits_to_keep": 1}


def _lengthened(part: Tensor, longest: int) -> Tensor:
    """Keys, values and their marks of one row, padded in front to the longest row; other states as they are."""
    if part.dim() == 4:
        return F.pad(part, (0, 0, longest - part.shape[2], 0))
    return F.pad(part, (longest - part.shape[1], 0)) if part.dtype == torch.bool else part
