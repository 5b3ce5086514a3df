"""How GPUs cut time and width into pieces (`lmu_products.py`, `triton_head.py`). No torch: the plan counts with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

MULTIPLE = 8  # tensor cores want rows of 16 bytes: 8 numbers of bfloat16
LONGEST_CHUNK = 128
SEGMENT = 2048  # longer sequences carry their memory from segment to segment: cost per token stays constant
OWN_KERNEL = 0.7  # speed of a product in a kernel of ours, assumed, relative to the library's
SMALLEST = 16  # side of a tensor core's product


def padded(size: int) -> int:
    return math.ceil(size / MULTIPLE) * MULTIPLE


def parts(width: int) -> tuple[int, int]:
    """Two powers of two, each at least 16, that hold a width: sides of a tensor core's tiles."""
    first = max(SMALLEST, 1 << ((width - 1).bit_length() - 1))
    return first, max(SMALLEST, 1 << max(0, width - first - 1).bit_length())


@dataclass(frozen=True)
class Chunks:
    """How n steps are cut: J chunks of C steps; Z has `rows` rows: C steps, q states, a one, and zeros."""

    n: int
    q: int
    steps: int
    count: int

    @property
    def rows(self) -> int:
        return padded(self.steps + self.q + 1)

    @property
    def length(self) -> int:
        return self.steps * self.count

    def flops(self, k: int) -> int:
        """Of a forward pass, per sequence and channel."""
        return 2 * self.length * (self.rows * k + self.q * self.count)


@lru_cache(maxsize=256)
def chunks(n: int, q: int, k: int) -> Chunks:
    """The cut with the fewest FLOPs: short chunks cost states, long ones a larger Toeplitz matrix."""
    lengths = range(MULTIPLE, min(LONGEST_CHUNK, padded(n)) + 1, MULTIPLE)
    return min((Chunks(n, q, steps, math.ceil(n / steps)) for steps in lengths), key=lambda cut: cut.flops(k))
