"""Implicit self-attention on the memory of each token (eqs. 8–10), in torch.

Q, K, V = gelu(L_i M + b_i) ∈ R^{q'×d} per token (Table 2's FLOPs prove that the inner axis is d), and
m = p·softmax(QKᵀ)·V. Because p is a row vector, m = w·V with w = p·softmax(QKᵀ) ∈ R^{q'}: M' is never formed.

Axes: b batch, n time, d channel, k = 3q' rows of Q, K and V together, i a row of Q, j a row of K and V.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def attend_tokens(y_kd: Tensor, p_i: Tensor, scale: float = 1.0) -> Tensor:
    """m [..., d] from the pre-activations [..., k, d] of Q, K and V, as small matrix products."""
    Q_id, K_jd, V_jd = F.gelu(y_kd).chunk(3, dim=-2)
    A_ij = torch.softmax(scale * (Q_id @ K_jd.transpose(-1, -2)), dim=-1)
    return ((p_i @ A_ij).unsqueeze(-2) @ V_jd).squeeze(-2)


def attend_time(y_bkdn: Tensor, p_i: Tensor, scale: float = 1.0) -> Tensor:
    """m [b, d, n], time innermost: for small q' faster than many tiny products, as sums vectorise over time."""
    Q_bidn, K_bjdn, V_bjdn = F.gelu(y_bkdn).chunk(3, dim=1)
    scores_bijn = torch.stack([(Q_bdn[:, None] * K_bjdn).sum(2) for Q_bdn in Q_bidn.unbind(1)], dim=1)
    A_bijn = torch.softmax(scale * scores_bijn, dim=2)
    w_bjn = (p_i[:, None, None] * A_bijn).sum(1)
    return (w_bjn[:, :, None] * V_bjdn).sum(1)
