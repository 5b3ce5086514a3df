"""Training as the default experiment does it: its steps, what they consist of, what surrounds them, the loader.

    python -m benchmarks.training

Stage: a step of every variant and size, ours and plain eager, weighted by the steps that the experiment takes of it,
learning-rate sweeps included; one thread, as each of its jobs has; freed memory is kept, as `train` does. Overhead: a
`Trainer` trains on random tokens, and the time spent outside its steps is added up. Loader: against nanoGPT-style
random reads of a memmap. Ours also gives every window once per epoch, the same batches after a restart, disjoint parts
for several processes, and prepares the next batch during the current step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import harness
from benchmarks.harness import CLOCKS, conditions
from benchmarks.step import OURS, PLAIN, as_first, stepper
from benchmarks.store import Table, cell, reference
from lmu_scaling import experiment
from lmu_scaling.config import load
from lmu_scaling.counting import count
from lmu_scaling.models import resolve
from lmu_scaling.runtime import keep_freed_memory, write_json
from lmu_scaling.sections import Config
from lmu_scaling.spec import DataSpec, RunSpec, TrainingSpec
from lmu_scaling.tokens.loader import Loader, Sampler
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.checkpoint import Checkpoints
from lmu_scaling.training.compute import compute_context
from lmu_scaling.training.loop import Trainer
from lmu_scaling.training.monitor import Monitor

FIRST = "our first kernels"
MIN_SAMPLE = 0.2  # [s]: a step of the default experiment takes milliseconds
PROFILED = 20  # steps
PARTS = {  # an operation belongs to the first part that has a piece of its name
    "loss": ("LinearCrossEntropy",),
    "LMU": ("NativeLMU",),
    "attention": ("CausalAttention", "scaled_dot_product", "flash"),
    "LSTM": ("_LSTM", "rnn", "lstm"),
    "products": ("mm", "linear"),
    "norms and gelu": ("layer_norm", "gelu"),
    "Adam, clipping": ("adam", "norm", "foreach"),
}
REST = "the rest"
CHECKPOINT_SECONDS = 600  # the workflow's default
BATCH, VOCAB = 2, 2048  # the default experiment's: its steps are the shortest, so shares are the largest
SHARDS, LOADER_VOCAB = 4, 50257
SHAPES = ((2, 256), (4, 1024), (64, 1024), (512, 1024))  # sequences per batch, tokens per sequence
MIN_TOKENS = 1 << 19  # per sample of the loader, so that starting a thread does not count


# Steps of the default experiment -------------------------------------------------------------------------------------


def step_of(config: Config, variant: str, size: str, kind: str) -> Callable[[], None]:
    spec = experiment.model_spec(config, variant, size)
    shape = {"n": spec.context, "batch": config.training.batch, "clip": config.training.tuning.clip}
    return stepper(variant, spec.d, spec.vocab, kind, **shape)


def stage_table(args: argparse.Namespace, config: Config) -> Table:
    steps: Counter[tuple[str, str]] = Counter()
    for run in [*experiment.runs(config), *experiment.sweeps(config)]:
        steps[run.variant, run.size] += experiment.spec_of(config, run).training.steps
    rows: list[list[Any]] = []
    total = {kind: np.zeros(args.rounds) for kind in (PLAIN, FIRST, OURS)}
    for (variant, size), number in steps.items():
        ours = step_of(config, variant, size, OURS)
        runs = {PLAIN: step_of(config, variant, size, PLAIN), FIRST: as_first(ours), OURS: ours}
        clock = CLOCKS[args.clock]
        found = harness.interleaved(runs, rounds=args.rounds, warm=5, at_least=MIN_SAMPLE, clock=clock)
        for kind, timing in found.items():
            total[kind] += number * np.array(timing.seconds)
        rows.append([variant, size, f"{number:,}", *_all(found, 1e3, " ms")])
    whole = {kind: harness.Timing(tuple(map(float, seconds))) for kind, seconds in total.items()}
    rows.append(["all", "all", f"{steps.total():,}", *_all(whole, targets=("stage", "stage_first"))])
    columns = ["variant", "size", "steps", PLAIN, FIRST, OURS, "ours / plain eager, time", "ours / first kernels, time"]
    shape = f"batch {config.training.batch}, n = {config.models.context}, vocabulary {config.tokens.vocab:,}"
    notes = [
        f"A step; in the last row all steps of the experiment; {shape}; {conditions(args, 1)}; freed memory is kept."
    ]
    return harness.table("The default experiment's training stage", columns, rows, notes, args.clock)


def _all(
    found: dict[str, harness.Timing], scale: float = 1.0, unit: str = " s", targets: tuple[str, str] = ("", "")
) -> list[Any]:
    plain, first, ours = (harness.seconds(found[kind], scale, unit) for kind in (PLAIN, FIRST, OURS))
    shares = [
        harness.share(found[OURS], found[kind], target) for kind, target in zip((PLAIN, FIRST), targets, strict=True)
    ]
    return [reference(plain), reference(first), ours, *shares]


def part_of(operation: str) -> str:
    return next((part for part, names in PARTS.items() if any(name in operation for name in names)), REST)


def by_part(step: Any) -> dict[str, float]:
    """Share of each part in the step's time; the profiler's own cost inflates parts with many small operations."""
    for _ in range(5):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(PROFILED):
            step()
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        spent[part_of(event.key)] += event.self_cpu_time_total
    return {part: spent[part] / spent.total() for part in [*PARTS, REST]}


def operations_table(args: argparse.Namespace, config: Config) -> Table:
    """The operations of a step, variant by variant."""
    sizes = [size.name for size in config.models.sizes]
    middle = sizes[len(sizes) // 2]
    rows: list[list[Any]] = []
    for variant in config.models.variants:
        shares = by_part(step_of(config, variant, middle, OURS))
        rows.append([variant, *(cell(share, unit="%") if share else None for share in shares.values())])
    note = f"Share of the CPU time of {PROFILED} steps at size {middle}, one thread, by torch's profiler."
    title = "A step of the default experiment, by operation"
    return harness.table(title, ["variant", *PARTS, REST], rows, [note], args.clock)


# What surrounds the steps --------------------------------------------------------------------------------------------


def random_tokens(folder: Path, train: int, vocab: int, shards: int = 1) -> Path:
    """Write a corpus of random tokens, as stage tokens would."""
    rng = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    splits: dict[str, dict[str, Any]] = {}
    for split, tokens, pieces in (("train", train, shards), ("validation", 64 * 1024, 1)):
        for piece in range(pieces):
            name = f"{piece:05d}.{split}.bin"
            rng.integers(vocab, size=tokens // pieces, dtype=np.uint16).tofile(folder / name)
            found.append({"file": name, "split": split, "tokens": tokens // pieces})
        splits[split] = {"bytes": 4 * tokens, "documents": 1}
    rules = {"vocab": vocab, "eot": vocab - 1, "digest": "noise", "dtype": "uint16"}
    write_json(folder / "index.json", rules | {"splits": splits, "shards": found})
    return folder


def spec(d: int, n: int, steps: int) -> RunSpec:
    training = TrainingSpec(
        batch=BATCH,
        steps=steps,
        seed=1,
        learning_rate=1e-3,
        betas=(0.9, 0.999),
        eps=1e-7,
        weight_decay=0.0,
        clip=1.0,
        warmup=0.04,
        plateau=None,
        validate_every=steps,
        validation_sequences=1,
    )
    return RunSpec(resolve("lmu", d, n, VOCAB), DataSpec("random", "random"), training)


def added_up(function: Callable[..., Any], total: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            total[0] += time.perf_counter() - start

    return timed


def train(folder: Path, d: int, n: int, steps: int, threads: int) -> dict[str, float]:
    """Seconds of one short run, and of its parts."""
    tokens = random_tokens(folder, max(1_000_000, 2 * steps * BATCH * n), VOCAB)
    compute = compute_context("cpu", "float32", threads)
    trainer = Trainer(spec(d, n, steps), TokenStore(tokens, "train"), TokenStore(tokens, "validation"), compute)
    flops = count(trainer.model.spec).flops_training
    monitor = Monitor(folder / "live", "benchmark", steps * BATCH * n, flops, peak=1e12, main=True)
    checkpoints = Checkpoints(folder / "checkpoints", "benchmark")
    logged = [0.0]
    trainer.record = added_up(trainer.record, logged)  # type: ignore[method-assign]
    monitor.advance = added_up(monitor.advance, logged)  # type: ignore[method-assign]
    trainer.run(monitor, checkpoints, checkpoint_seconds=float("inf"))
    monitor.close()
    saves = []
    for _ in range(5):
        start = time.perf_counter()
        trainer.save(checkpoints)
        saves.append(time.perf_counter() - start)
    return {"step": trainer.seconds, "wait": trainer.waited, "log": logged[0], "save": float(np.median(saves))}


def overhead_table(args: argparse.Namespace) -> Table:
    rows = []
    for d, n, steps in ((16, 256, 1600), (48, 1024, 80)):  # the same when quick: fewer steps are logged more often
        with tempfile.TemporaryDirectory() as folder:
            found = train(Path(folder), d, n, steps, args.threads)
        per_step = cell(1e3 * found["step"] / steps, better="lower", unit=" ms")
        for what, share, target in (
            ("waiting for data, of the run's time", found["wait"] / found["step"], "data_wait"),
            ("a checkpoint (fsynced), of the 600 s until the next", found["save"] / CHECKPOINT_SECONDS, "checkpoint"),
            ("history, progress line and live file, of the run's time", found["log"] / found["step"], "logging"),
        ):
            rows.append([f"d = {d}, n = {n}", per_step, what, cell(share, better="lower", unit="%", target=target)])
    notes = [
        f"A real run of the LMU, batch {BATCH}, vocabulary {VOCAB:,}, on random tokens, in wall time. The first is the "
        "default experiment's smallest model with as many steps, which decide how often it logs.",
    ]
    return harness.table("What surrounds the steps", ["model", "a step", "what", "share"], rows, notes, args.clock)


# Loader --------------------------------------------------------------------------------------------------------------


def nanogpt(path: Path, batch: int, n: int, count: int) -> Callable[[], None]:
    """As nanoGPT's get_batch: a memmap opened for every batch, random offsets with replacement, one row at a time."""
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        for _ in range(count):
            data = np.memmap(path, dtype=np.uint16, mode="r")
            starts = torch.randint(len(data) - n, (batch,), generator=generator).tolist()
            torch.stack([torch.from_numpy(data[i : i + n].astype(np.int64)) for i in starts])
            torch.stack([torch.from_numpy(data[i + 1 : i + 1 + n].astype(np.int64)) for i in starts])

    return run


def our_loader(store: TokenStore, batch: int, n: int, count: int) -> Callable[[], None]:
    sampler = Sampler(store.windows(n), batch, seed=0)

    def run() -> None:
        for _ in Loader(store, sampler, n, 0, count):
            pass

    return run


def loader_table(args: argparse.Namespace, folder: Path) -> Table:
    tokens = 8_000_000 if args.quick else 200_000_000
    store = TokenStore(random_tokens(folder, tokens, LOADER_VOCAB, SHARDS), "train")
    rows: list[list[Any]] = []
    for batch, n in SHAPES:
        count = max(4, MIN_TOKENS // (batch * n))
        runs = {
            "nanogpt": nanogpt(folder / "00000.train.bin", batch, n, count),
            "ours": our_loader(store, batch, n, count),
        }
        found = harness.interleaved(runs, rounds=args.rounds, clock=CLOCKS[args.clock])
        speeds = [reference(harness.rate(found["nanogpt"], count)), harness.rate(found["ours"], count)]
        rows.append([f"{batch} × {n}", *speeds, harness.ratio(found["ours"], found["nanogpt"])])
    columns = ["batch", "nanoGPT-style [batches/s]", "ours [batches/s]", "ours / nanoGPT-style"]
    notes = [f"{tokens / 1e6:.0f}M random tokens in {SHARDS} shards, in the page cache; {conditions(args)}."]
    return harness.table("Loader: batches per second", columns, rows, notes, args.clock)


def measure(args: argparse.Namespace) -> harness.Section:
    with tempfile.TemporaryDirectory() as folder:
        rounds = args.rounds if args.quick else max(args.rounds, 7)  # batches are fast
        loader = loader_table(argparse.Namespace(**{**vars(args), "rounds": rounds}), Path(folder))
    keep_freed_memory()
    config = load(harness.ROOT / "config.yaml")
    torch.set_num_threads(1)
    steps = [stage_table(args, config), operations_table(args, config)]
    torch.set_num_threads(args.threads)
    return [*steps, overhead_table(args), loader], (
        "for small batches the permutation and the hand-over between threads cost more than the reads, but a step "
        "takes hundreds of times longer than a batch. Cold disks were not measured."
    )


if __name__ == "__main__":
    harness.run_section("training", measure, __doc__, rounds=3)
