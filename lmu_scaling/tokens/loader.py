"""Batches as a pure function of (seed, step), and a loader that prepares them in advance.

The order of windows in an epoch is a keyed permutation of 0 … windows - 1, computed without storing it:
a Feistel network over the next even number of bits, with cycle walking to stay inside the range. A resumed run sees
exactly the batches it would have seen, and no window repeats within an epoch.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from lmu_scaling.errors import TokensError
from lmu_scaling.tokens.store import TokenStore

if TYPE_CHECKING:
    import torch

    Batch = tuple[torch.Tensor, torch.Tensor]

ROUNDS = 8
AT_ONCE = 1024  # windows permuted in one go
SMALL = 1 << 16  # tokens; smaller batches are made many at once: passing them between threads would cost more
AHEAD = 2  # batches that a thread makes in advance
GOLDEN = 0x9E3779B97F4A7C15
MASK64 = (1 << 64) - 1


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(positions: np.ndarray, n: int, key: int) -> np.ndarray:
    """Apply the permutation of 0 … n - 1 that `key` selects to `positions`."""
    half = max(((n - 1).bit_length() + 1) // 2, 1)
    low = np.uint64((1 << half) - 1)
    shift = np.uint64(half)
    x = np.asarray(positions, np.uint64).copy()
    todo = np.arange(len(x))
    with np.errstate(over="ignore"):
        while len(todo):
            left, right = x[todo] >> shift, x[todo] & low
            for round_number in range(ROUNDS):
                word = np.uint64((key + round_number * GOLDEN) & MASK64)
                left, right = right, left ^ (_mix(right + word) & low)
            x[todo] = (left << shift) | right
            # At most 3 of 4 values lie outside the range, so a few rounds suffice.
            todo = todo[x[todo] >= np.uint64(n)]
    return x.astype(np.int64)


class Sampler:
    """Which windows make up step `step`; with `world` ranks, which of them are rank `rank`'s."""

    def __init__(self, windows: int, batch: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if windows < 1:
            raise TokensError("the split is shorter than one window", "tokens", "use more text or a shorter context")
        if batch % world:
            raise TokensError(
                f"a batch of {batch} cannot be divided among {world} processes", "training.batch", "use a multiple"
            )
        self.windows, self.size, self.seed, self.rank, self.world = windows, batch, seed, rank, world
        self._at_once = max(1, AT_ONCE // batch)
        self._block: tuple[int, np.ndarray] = (-1, np.empty((0, 0), np.int64))

    def batch(self, step: int) -> np.ndarray:
        """Window indices of a step (of this rank's contiguous share of it)."""
        block, row = divmod(step, self._at_once)
        if self._block[0] != block:  # computing many steps at once costs hardly more than one
            self._block = (block, self._steps(block * self._at_once))
        return self._block[1][row]

    def _steps(self, first: int) -> np.ndarray:
        """Windows [step, share] of this and the following steps."""
        share = self.size // self.world
        starts = np.arange(first, first + self._at_once, dtype=np.int64) * self.size + self.rank * share
        return self._windows((starts[:, None] + np.arange(share)).ravel()).reshape(self._at_once, share)

    def _windows(self, positions: np.ndarray) -> np.ndarray:
        """Windows at positions in the sequence of all epochs; a batch may span two epochs."""
        epochs = positions // self.windows
        out = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            mine = epochs == epoch
            out[mine] = permute(positions[mine] - epoch * self.windows, self.windows, self._key(epoch))
        return out

    def _key(self, epoch: int) -> int:
        with np.errstate(over="ignore"):
            mixed = _mix(_mix(np.array([self.seed & MASK64], np.uint64) + np.uint64(GOLDEN)) + np.uint64(epoch))
        return int(mixed[0])

    def epochs(self, steps: int) -> float:
        """How often the data are seen in `steps` steps."""
        return steps * self.size / self.windows


class Loader:
    """Iterates over (inputs, targets), int64 [batch, context] each, of steps `start` to `stop`.

    Large batches, and those for a GPU, are made in advance by a thread; small ones many at once, without a thread.
    `wait_seconds` is the time spent waiting for data.
    """

    def __init__(
        self,
        store: TokenStore,
        sampler: Sampler,
        context: int,
        start: int = 0,
        stop: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.store, self.sampler, self.context = store, sampler, context
        self.start, self.stop, self.device = start, stop, device
        self.wait_seconds = 0.0

    def _make(self, steps: Iterable[int]) -> Batch:
        """The batches of these steps, concatenated."""
        import torch  # loaded already, by `__iter__`

        windows = np.concatenate([self.sampler.batch(step) for step in steps])
        tokens = torch.from_numpy(self.store.gather(windows, self.context))
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        if torch.device(self.device).type == "cuda":
            # Page-locked memory lets the copy overlap with computation.
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        return inputs, targets

    def __iter__(self) -> Iterator[Batch]:
        import torch

        rows = self.sampler.size // self.sampler.world
        at_once = SMALL // (rows * self.context)
        here = at_once > 0 and torch.device(self.device).type == "cpu"
        batches = self._here(rows, at_once) if here else self._ahead()
        try:
            while True:
                before = time.perf_counter()
                batch = next(batches, None)
                self.wait_seconds += time.perf_counter() - before
                if batch is None:
                    return
                inputs, targets = batch
                yield inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)
        finally:
            batches.close()

    def _numbers(self) -> Iterable[int]:
        return itertools.count(self.start) if self.stop is None else range(self.start, self.stop)

    def _here(self, rows: int, at_once: int) -> Generator[Batch, None, None]:
        numbers = iter(self._numbers())
        while steps := list(itertools.islice(numbers, at_once)):
            inputs, targets = self._make(steps)
            yield from zip(inputs.split(rows), targets.split(rows), strict=True)

    def _ahead(self) -> Generator[Batch, None, None]:
        numbers = iter(self._numbers())
        with ThreadPoolExecutor(1) as thread:
            ready = deque(thread.submit(self._make, [step]) for step in itertools.islice(numbers, AHEAD))
            while ready:
                batch = ready.popleft().result()
                ready += [thread.submit(self._make, [step]) for step in itertools.islice(numbers, 1)]
                yield batch
