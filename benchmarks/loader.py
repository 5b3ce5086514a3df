"""Batches per second of the loader against nanoGPT-style random reads of a memmap: `python -m benchmarks.loader`.

Ours promises more: every window once per epoch, the same batches after a restart, disjoint parts for several
processes, the next batch made while the current one trains. nanoGPT draws offsets at random, with replacement.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.machine import CLOCKS, how, options, settle
from benchmarks.store import Table, aside
from benchmarks.surroundings import random_tokens
from lmu_scaling.tokens.loader import Loader, Sampler
from lmu_scaling.tokens.store import TokenStore

SHARDS, VOCAB = 4, 50257
SHAPES = ((2, 256), (4, 1024), (64, 1024), (512, 1024))  # sequences per batch, tokens per sequence
TOKENS = 1 << 19  # per sample at least, so that starting a thread does not count


def nanogpt(path: Path, batch: int, n: int, count: int) -> Callable[[], None]:
    """The idea of nanoGPT's get_batch: a memmap opened anew for every batch, random offsets, one row at a time."""
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        for _ in range(count):
            data = np.memmap(path, dtype=np.uint16, mode="r")
            starts = torch.randint(len(data) - n, (batch,), generator=generator).tolist()
            torch.stack([torch.from_numpy(data[i : i + n].astype(np.int64)) for i in starts])
            torch.stack([torch.from_numpy(data[i + 1 : i + 1 + n].astype(np.int64)) for i in starts])

    return run


def ours(store: TokenStore, batch: int, n: int, count: int) -> Callable[[], None]:
    sampler = Sampler(store.windows(n), batch, seed=0)

    def run() -> None:
        for _ in Loader(store, sampler, n, 0, count):
            pass

    return run


def table(args: argparse.Namespace, folder: Path) -> Table:
    tokens = 8_000_000 if args.quick else 200_000_000
    store = TokenStore(random_tokens(folder, tokens, VOCAB, SHARDS), "train")
    rows: list[list[Any]] = []
    for batch, n in SHAPES:
        count = max(4, TOKENS // (batch * n))
        runs = {
            "nanogpt": nanogpt(folder / "00000.train.bin", batch, n, count),
            "ours": ours(store, batch, n, count),
        }
        timings = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=CLOCKS[args.clock])
        speeds = [aside(harness.rate(timings["nanogpt"], count)), harness.rate(timings["ours"], count)]
        rows.append([f"{batch} × {n}", *speeds, harness.ratio(timings["ours"], timings["nanogpt"])])
    columns = ["batch", "nanoGPT-style [batches/s]", "ours [batches/s]", "ours / nanoGPT-style"]
    notes = [f"{tokens / 1e6:.0f}M random tokens in {SHARDS} shards, in the page cache; {how(args)}."]
    return harness.table("Loader: batches per second", columns, rows, notes, args.clock)


def main() -> None:
    args = settle(options(__doc__).parse_args())
    with tempfile.TemporaryDirectory() as folder:
        found = table(args, Path(folder))
    left = (
        "for small batches the permutation and the hand-over between threads cost more than the reads; a step takes "
        "hundreds of times longer than a batch (see what surrounds the steps). Cold disks were not measured."
    )
    harness.publish("loader", [found], left, args.quick)


if __name__ == "__main__":
    main()
