"""Cross-entropy of every token, without ever holding all logits (section 5: nats, averaged over all tokens).

The hidden states of a batch of windows are cut into tiles of tokens; a tile's logits exist for a moment only. Losses
are float32 as they leave the tile and are summed in float64 by the caller.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.counting import count
from lmu_scaling.models import ModelSpec
from lmu_scaling.models.network import LanguageModel

TILE_CPU = 1 << 19  # logits that exist at once: 2 MB, which stays in the cache
TILE_GPU = 1 << 27
TOKENS_CPU = 1 << 13  # tokens per forward pass
HELD_FACTOR = 4  # a forward pass needs work space beside what training would hold


def token_losses(model: LanguageModel, ids_bm: Tensor) -> Tensor:
    """-ln p of the tokens 2 … m of each row, [b, m - 1], float32."""
    h_td = model.hidden(ids_bm[:, :-1]).float().flatten(0, 1)
    targets_t = ids_bm[:, 1:].flatten()
    weight_dv = model.head_weight.float().T
    rows = max(16, (TILE_CPU if h_td.device.type == "cpu" else TILE_GPU) // weight_dv.shape[1])
    pieces = []
    for h, target in zip(h_td.split(rows), targets_t.split(rows), strict=True):
        pieces.append(F.cross_entropy(h @ weight_dv, target, reduction="none"))
    return torch.cat(pieces).view(len(ids_bm), -1)


def windows_per_batch(spec: ModelSpec, device: torch.device) -> int:
    """As many windows as fit well; the result does not depend on it."""
    if device.type != "cuda":
        return max(1, TOKENS_CPU // spec.context)
    free, _ = torch.cuda.mem_get_info(device)
    per_window = HELD_FACTOR * count(spec).activation_bytes * spec.context
    return int(max(1, min(1024, (free // 2 - 8 * TILE_GPU) // max(per_window, 1))))
