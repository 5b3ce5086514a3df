"""`python -m lmu_scaling`, but process 1 runs out of memory as a GPU does with more than one sequence at a time."""

from __future__ import annotations

import os
import sys

import torch

from lmu_scaling.cli import main
from lmu_scaling.training import loop


class SmallDevice(loop.Objective):
    def forward(self, inputs_bn: torch.Tensor, targets_bn: torch.Tensor) -> torch.Tensor:
        if os.environ["RANK"] == "1" and len(inputs_bn) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return super().forward(inputs_bn, targets_bn)


loop.Objective = SmallDevice  # type: ignore[misc]
raise SystemExit(main(sys.argv[1:]))
