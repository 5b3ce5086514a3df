"""A whole training step, and its loss, against the plain eager way: `python -m benchmarks.step`.

    python -m benchmarks.step                     # one thread, processor seconds: for machines that others use too
    python -m benchmarks.step --threads 2 --clock wall       # on a quiet machine
    python -m benchmarks.step --quick             # vocabulary 8,192 and the LMU only

Plain eager: reduced-order layer as printed (torch's own gradients, M' formed), full logits, `F.cross_entropy`,
`torch.optim.Adam`. Ours: what `train` does.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import harness
from benchmarks.layer_forms import attend_literally, convolve
from lmu_scaling.counting import count
from lmu_scaling.models import resolve, variants
from lmu_scaling.models.layers import LMU
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.training.adam import Adam
from lmu_scaling.training.checkpoint import Checkpoints, State, pack
from lmu_scaling.training.loop import Objective
from lmu_scaling.training.loss import linear_cross_entropy

D, N, BATCH = 48, 1024, 4
PLAIN, OURS = "plain eager", "ours"


class PlainLMU(torch.nn.Module):
    """The reduced-order layer of appendix A.1, written down and left to torch."""

    def __init__(self, layer: LMU) -> None:
        super().__init__()
        self.inner = layer

    def forward(self, x_bnd: Tensor) -> Tensor:
        L_kq = self.inner.L.flatten(0, 1)
        filters_kn = self.inner.memory.filters(x_bnd.shape[1], x_bnd.dtype, x_bnd.device, L_kq)
        y_bnkd = convolve(x_bnd, filters_kn) + self.inner.bias.flatten()[:, None]
        return attend_literally(y_bnkd, self.inner.p)


def plain(model: LanguageModel) -> LanguageModel:
    for index, layer in enumerate(model.layers):
        if isinstance(layer, LMU):
            model.layers[index] = PlainLMU(layer)
    return model


def stepper(variant: str, vocab: int, kind: str, batch: int = BATCH) -> Callable[[], None]:
    """A closure that takes one optimiser step on fixed random tokens."""
    model = build(resolve(variant, D, N, vocab), seed=1)
    ids = torch.randint(vocab, (batch, N + 1), generator=torch.Generator().manual_seed(0))
    inputs_bn, targets_bn = ids[:, :-1], ids[:, 1:]
    if kind == PLAIN:
        model = plain(model)
        optimiser = torch.optim.Adam(model.parameters(), eps=1e-7)

        def step() -> None:
            optimiser.zero_grad()
            logits = model.hidden(inputs_bn).flatten(0, 1) @ model.head_weight.T
            F.cross_entropy(logits, targets_bn.flatten()).backward()
            optimiser.step()

        return step
    objective, adam = Objective(model), Adam(model, [0.9, 0.999], 1e-7, 0.0)

    def step_ours() -> None:
        adam.zero_grad()
        objective(inputs_bn, targets_bn).backward()
        adam.step(1e-3)

    return step_ours


def loss_call(kind: str, vocab: int, tokens: int) -> Callable[[], Any]:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(tokens, D, generator=generator, requires_grad=True)
    weight = (0.1 * torch.randn(vocab, D, generator=generator)).requires_grad_()
    targets = torch.randint(vocab, (tokens,), generator=generator)
    if kind == PLAIN:
        return lambda: torch.autograd.grad(F.cross_entropy(h @ weight.T, targets), (h, weight))
    return lambda: torch.autograd.grad(linear_cross_entropy(h, weight, targets), (h, weight))


def loss_probe(kind: str, vocab: int, tokens: int) -> Callable[[], Any]:
    torch.set_num_threads(1)
    return loss_call(kind, vocab, tokens)


def steps_table(args: argparse.Namespace) -> dict[str, Any]:
    rows = []
    peak = harness.sgemm_peak()
    for vocab in args.vocabularies:
        for variant in args.variants:
            runs = {kind: stepper(variant, vocab, kind) for kind in (PLAIN, OURS)}
            timing = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=harness.CLOCKS[args.clock])
            speed = {kind: BATCH * N / timing[kind].median for kind in runs}
            spread = max(t.spread for t in timing.values()) if hasattr(timing[OURS], "spread") else None
            share = speed[OURS] * count(resolve(variant, D, N, vocab)).flops_training / peak
            ratio = speed[OURS] / speed[PLAIN]
            rows.append([variant, vocab, speed[PLAIN], speed[OURS], f"{ratio:.2f}×", f"{share:.0%}"])
            print(rows[-1], spread, flush=True)
    return harness.table(
        f"A training step, d = {D}, n = {N}, batch {BATCH}",
        ["variant", "vocabulary", "plain eager [tokens/s]", "ours [tokens/s]", "ratio", "share of sgemm peak"],
        rows,
        [
            "Plain eager: reduced-order layer and full logits with torch's own gradients; ours: what `train` does.",
            "Bars for the LMU: ≥ 1.3× at vocabulary 50,257 and ≥ 1.5× at 8,192.",
            f"{args.threads} thread(s), {args.clock} seconds, {args.rounds} interleaved rounds, medians. "
            "Again: `python -m benchmarks.step`.",
        ],
    )


def loss_table(args: argparse.Namespace) -> dict[str, Any]:
    tokens, vocab = 2048, 50257
    runs = {kind: loss_call(kind, vocab, tokens) for kind in (PLAIN, OURS)}
    timing = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=harness.CLOCKS[args.clock])
    memory = {
        kind: harness.peak_memory("benchmarks.step:loss_probe", kind=kind, vocab=vocab, tokens=tokens)["peak"]
        for kind in runs
    }
    rows = [
        [name, tokens / timing[kind].median, f"{timing[PLAIN].median / timing[kind].median:.2f}×", memory[kind] / 1e6,
         f"{memory[kind] / memory[PLAIN]:.2f}"]
        for kind, name in ((PLAIN, "full logits + F.cross_entropy"), (OURS, "linear_cross_entropy"))
    ]  # fmt: skip
    return harness.table(
        f"Cross-entropy over {vocab:,} classes, forward and backward, {tokens:,} tokens, d = {D}",
        ["form", "tokens/s", "ratio", "peak memory [MB]", "share of full logits"],
        rows,
        ["Bars: ≥ 1.25× in speed, ≤ 1/4 of the memory. Again: `python -m benchmarks.step`."],
    )


def overhead_table(args: argparse.Namespace) -> dict[str, Any]:
    """What a checkpoint costs beside the steps between two of them."""
    model = build(resolve("lmu", D, N, 50257), seed=1)
    adam = Adam(model, [0.9, 0.999], 1e-7, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), "benchmark")
        save = {"save": lambda: checkpoints.save(State(1, pack(model, adam), {"history": []}))}
        seconds = harness.interleaved(save, rounds=args.rounds, warm=1)["save"].median
    rows = [["checkpoint (weights and moments, fsynced)", f"{seconds:.3f} s", f"{seconds / 600:.3%} of the time"]]
    return harness.table(
        "What surrounds the steps",
        ["what", "cost", "share"],
        rows,
        [
            "A checkpoint is written every 600 s (`checkpoint_seconds`); bar: < 2 %. "
            "The share of waiting for data is in every run's result.json (`data_wait_share`; bar: < 1 %).",
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=sorted(harness.CLOCKS), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.vocabularies = [8192] if args.quick else [4096, 8192, 50257]
    args.variants = ["lmu"] if args.quick else variants()
    args.rounds = 3 if args.quick else args.rounds
    harness.publish("step", [steps_table(args), loss_table(args), overhead_table(args)])


if __name__ == "__main__":
    main()
