"""Rotary positions: queries and keys of attention are rotated by an angle that grows with the position.

The product of a rotated query and a rotated key depends on their distance only. Pairs are (i, i + ⌊e/2⌋) of a head of
width e; pair i turns by position · BASE^(−2i/e). The last component of an odd width stays. There are no parameters.

Axes: b batch, h head, n position, e width of a head.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

BASE = 10_000.0


@functools.lru_cache(maxsize=8)
def angles(start: int, n: int, e: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine [n, ⌊e/2⌋] of the positions start … start + n − 1; computed in float64."""
    with torch.inference_mode(False):  # made while generating, they must serve training as well
        rates = BASE ** (-torch.arange(0, e - 1, 2, dtype=torch.float64) / e)
        angles = torch.arange(start, start + n, dtype=torch.float64)[:, None] * rates
        return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate(x_bhne: Tensor, start: int = 0) -> Tensor:
    """Rotate vectors at the positions start, start + 1, …"""
    n, e = x_bhne.shape[-2:]
    cosine, sine = (table.to(x_bhne.dtype) for table in angles(start, n, e, x_bhne.device))
    first, second, rest = x_bhne.split([e // 2, e // 2, e % 2], dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine, rest], dim=-1)
