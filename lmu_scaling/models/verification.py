"""A GPU kernel proves itself: at its first use on a device it is compared with the plain form on a small input.

If it deviates, or fails to compile or launch, the plain form takes over and a note says so once. Nobody gets a number
from a kernel that is wrong on his device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

# Largest difference relative to the largest value, by the dtype of the kernel's operands: about 30 roundings.
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
_verdicts: dict[Hashable, bool] = {}


@dataclass(frozen=True)
class Comparison:
    """One result of a kernel and of the plain form in float64."""

    name: str
    found: Tensor
    wanted: Tensor

    @property
    def error(self) -> float:
        """Largest difference, relative to the largest value; infinite if anything is not finite."""
        difference = (self.found.double() - self.wanted.double()).abs().max() / self.wanted.abs().max()
        return float(difference) if bool(torch.isfinite(difference)) else float("inf")


def proven(
    kernel: str, case: tuple[Hashable, ...], device: torch.device, compare: Callable[[], list[Comparison]]
) -> bool:
    """Whether the kernel is right for this case (its constants, the last of them its dtype) on this device."""
    if device.type == "meta":  # nothing is computed there
        return True
    key = (kernel, case, device)
    if key not in _verdicts:
        _verdicts[key] = _judge(kernel, case, device, compare)
    return _verdicts[key]


def _judge(
    kernel: str, case: tuple[Hashable, ...], device: torch.device, compare: Callable[[], list[Comparison]]
) -> bool:
    bound = BOUNDS[case[-1]]  # type: ignore[index]
    try:
        with torch.inference_mode(False):  # gradients are compared as well
            worst = max(compare(), key=lambda entry: entry.error)
    except Exception as error:  # whatever the compiler or the driver raises
        reason = f"it failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    else:
        if worst.error <= bound:
            return True
        reason = f"its {worst.name} is off by {worst.error:.1e} (allowed: {bound:.0e})"
    print(
        f"note: the Triton kernel for {kernel} {case} is not used on {device}: {reason}. The plain form is used, "
        "with right results but slower; please report this with the output of `python -m lmu_scaling selftest`",
        file=sys.stderr,
        flush=True,
    )
    return False
