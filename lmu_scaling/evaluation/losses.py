"""Cross-entropy of every token, without ever holding all logits (section 5: nats, averaged over all tokens).

The loss is the one that training uses (models/loss.py), which holds the logits of a chunk of tokens at a time. Losses
are float32 as they leave the chunk and are summed in float64 by the caller. That they are right is shown otherwise:
an independent computation in the tests, and a plain float64 log-softmax in the audit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lmu_scaling.counting import count
from lmu_scaling.models import ModelSpec, loss
from lmu_scaling.models.network import LanguageModel

TILE_CPU = 1 << 19  # logits that exist at once: 2 MB, which stays in the cache
TILE_GPU = 1 << 27
TOKENS_CPU = 1 << 13  # tokens per forward pass
HELD_FACTOR = 4  # a forward pass needs work space beside what training would hold


def token_losses(model: LanguageModel, ids_bm: Tensor) -> Tensor:
    """-ln p of the tokens 2 … m of each row, [b, m - 1], float32."""
    h_td = model.hidden(ids_bm[:, :-1]).float().flatten(0, 1)
    weight_vd = model.head_weight.float()
    rows = max(16, (TILE_CPU if h_td.device.type == "cpu" else TILE_GPU) // len(weight_vd))
    losses_t = loss.token_losses(h_td, weight_vd, ids_bm[:, 1:].flatten(), model.compiled, rows)
    return losses_t.view(len(ids_bm), -1)


def windows_per_batch(spec: ModelSpec, device: torch.device) -> int:
    """As many windows as fit well; the result does not depend on it."""
    if device.type != "cuda":
        return max(1, TOKENS_CPU // spec.context)
    free, _ = torch.cuda.mem_get_info(device)
    per_window = HELD_FACTOR * count(spec).activation_bytes * spec.context
    return int(max(1, min(1024, (free // 2 - 8 * TILE_GPU) // max(per_window, 1))))
