"""The device a job computes on: the one it asks for, else the best that torch sees."""

from __future__ import annotations

import torch

from lmu_scaling.errors import UserError


class DeviceError(UserError):
    """The requested device, precision or number of processes is not available."""


def choose(device: str = "auto") -> torch.device:
    """`auto` is a GPU where torch sees one; a GPU that is asked for and not seen is an error, never the CPU."""
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if kind.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceError(
            "this job asks for a GPU, but torch sees none",
            f"device {device!r}, torch {torch.__version__}",
            "run on a GPU node with a CUDA build of torch (docs/cluster.md), or use device cpu",
        )
    return torch.device(kind)
