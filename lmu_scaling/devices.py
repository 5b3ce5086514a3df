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
    forbid_tf32()
    return torch.device(kind)


def forbid_tf32(lstm: bool = False) -> None:
    """Compute float32 products in float32 on a GPU: TF32 keeps 10 bits (pre-activations 3e-4 off instead of 2e-7).

    `lstm` allows it in cuDNN, which only the LSTM uses: its sums are then still more precise than bfloat16.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = lstm
