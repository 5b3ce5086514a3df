"""Our Adam is torch's Adam."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lmu_scaling.training.adam import Adam


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_equals_torchs_adam_bit_for_bit(weight_decay: float) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    adam = Adam(ours, [0.9, 0.999], 1e-7, weight_decay)
    reference = torch.optim.Adam(
        theirs.parameters(), eps=1e-7, weight_decay=weight_decay, decoupled_weight_decay=True, fused=True
    )
    for step in range(20):
        rate = 0.1 / (step + 1)
        x = torch.randn(4, 5)
        for model in (ours, theirs):
            model.zero_grad()
            model(x).square().sum().backward()
        adam.step(rate)
        reference.param_groups[0]["lr"] = rate
        reference.step()
        assert torch.equal(ours.weight, theirs.weight)
        assert torch.equal(ours.bias, theirs.bias)
