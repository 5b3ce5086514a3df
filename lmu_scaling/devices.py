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
    exact_products()
    return torch.device(kind)


def exact_products(lstm_in_tf32: bool = False) -> None:
    """On a GPU, compute float32 products in float32, and sum those of bfloat16 in float32.

    TF32 keeps 10 bits: the LMU's pre-activations would be 3e-4 off instead of 2e-7. The LSTM may use it, which is all
    that cuDNN is used for; it is then still more precise than the bfloat16 around it.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.allow_tf32 = lstm_in_tf32
