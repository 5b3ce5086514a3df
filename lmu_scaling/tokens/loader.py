"""Batches as a pure function of (seed, step), and a loader that has the next one ready.

The order of windows in an epoch is a keyed permutation of 0 … windows - 1, computed without storing it:
a Feistel network over the next even number of bits, walked until it lands inside the range. A resumed run sees exactly
the batches it would have seen, and no window comes twice before every window came once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from lmu_scaling.errors import TokensError
from lmu_scaling.tokens.store import TokenStore

if TYPE_CHECKING:
    import torch

ROUNDS = 8
GOLDEN = 0x9E3779B97F4A7C15
MASK64 = (1 << 64) - 1


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(positions: np.ndarray, n: int, key: int) -> np.ndarray:
    """Where a permutation of 0 … n - 1, chosen by `key`, sends `positions`."""
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
            # At most 3 of 4 values lie outside the range, so a few rounds of walking suffice.
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

    def batch(self, step: int) -> np.ndarray:
        """Window indices of a step (of this rank's contiguous share of it)."""
        share = self.size // self.world
        first = step * self.size + self.rank * share
        return self._windows(np.arange(first, first + share, dtype=np.int64))

    def _windows(self, positions: np.ndarray) -> np.ndarray:
        """Positions in the endless sequence of epochs → windows; a batch may straddle epochs."""
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
    """Iterates over (inputs, targets), int64 [batch, context] each, of steps `start` to `stop`, one batch ahead.

    `wait_seconds` is the time the reader spent waiting: its share of the run's time says whether data are too slow.
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
        self.batches = 0

    def _make(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        import torch  # long since loaded: `__iter__` did it before the clock started

        tokens = torch.from_numpy(self.store.gather(self.sampler.batch(step), self.context))
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        if torch.device(self.device).type == "cuda":
            # Page-locked memory lets the copy run beside the computation.
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        return inputs, targets

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        import torch  # noqa: F401

        ready: queue.Queue = queue.Queue(maxsize=1)
        closed = threading.Event()
        worker = threading.Thread(target=self._fill, args=(ready, closed), daemon=True)
        worker.start()
        try:
            while True:
                before = time.perf_counter()
                item = ready.get()
                self.wait_seconds += time.perf_counter() - before
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                self.batches += 1
                yield tuple(part.to(self.device, non_blocking=True) for part in item)
        finally:
            closed.set()
            worker.join()

    def _fill(self, ready: queue.Queue, closed: threading.Event) -> None:
        step = self.start
        item: object = None
        while not closed.is_set() and (self.stop is None or step < self.stop):
            try:
                item = self._make(step)
            except BaseException as error:
                item = error
            _put(ready, item, closed)
            if isinstance(item, BaseException):
                return
            step += 1
        _put(ready, None, closed)


def _put(ready: queue.Queue, item: object, closed: threading.Event) -> None:
    """Wait for room, but not for a reader who left."""
    while not closed.is_set():
        try:
            ready.put(item, timeout=0.1)
            return
        except queue.Full:
            continue
