"""Selection of the device that a job computes on."""

from __future__ import annotations

import torch

from lmu_scaling.errors import UserError


class DeviceError(UserError):
    """The requested device, precision or number of processes is not available."""


def choose(device: str = "auto") -> torch.device:
    """`auto`: a GPU if torch sees one, else the CPU. A requested GPU that torch does not see is an error."""
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if kind.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceError(
            "this job requests a GPU, but torch sees none",
            f"device {device!r}, torch {torch.__version__}",
            "run on a GPU node with a CUDA build of torch (docs/cluster.md), or use device cpu",
        )
    return torch.device(kind)
