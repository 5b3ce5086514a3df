"""A training step and its loss against plain eager torch, and against Hugging Face's GPT-2 for the transformer.

    python -m benchmarks.step            # every variant and size: about 10 minutes on two cores
    python -m benchmarks.step --quick    # d = 48 and vocabulary 8,192, and the loss

Plain eager: reduced-order layer as printed (torch's own gradients, M' formed), full logits, `F.cross_entropy`,
`torch.optim.Adam` with its fused kernel. Ours: the step that `train` takes. Network, initial weights and tokens are the
same. As in benchmarks.layer, freed memory is kept for reuse on all sides.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import harness
from benchmarks.harness import CLOCKS, conditions
from benchmarks.layer import attend_literally, convolve
from benchmarks.peak import float32_peak
from benchmarks.peers import Peer
from benchmarks.store import Cell, Table, cell, reference
from lmu_scaling.counting import count
from lmu_scaling.models import causal_attention, native, resolve, variants
from lmu_scaling.models.layers.lmu import LMU
from lmu_scaling.models.loss import linear_cross_entropy
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.runtime import keep_freed_memory
from lmu_scaling.training.adam import Adam
from lmu_scaling.training.loop import Objective

N, BATCH = 1024, 4
WIDTHS = {"S": 48, "M": 96, "L": 204}
PLAIN, OURS, GPT2 = "plain eager", "ours", "Hugging Face GPT-2"
SHARE = "share of the float32 peak"
TARGETS = {("lmu", "S", 50257): "step_50257", ("lmu", "S", 8192): "step_8192"}
Case = tuple[str, str, int]  # variant, size, vocabulary


# Forms ---------------------------------------------------------------------------------------------------------------


class PlainLMU(torch.nn.Module):
    """The reduced-order layer of appendix A.1, left to torch."""

    def __init__(self, layer: LMU) -> None:
        super().__init__()
        self.inner = layer

    def forward(self, x_bnd: Tensor) -> Tensor:
        L_kq = self.inner.L.flatten(0, 1)
        filters_kn = self.inner.memory.filters(x_bnd.shape[1], x_bnd.dtype, x_bnd.device, L_kq)
        y_bnkd = convolve(x_bnd, filters_kn).contiguous() + self.inner.bias.flatten()[:, None]
        return attend_literally(y_bnkd, self.inner.p)


def plain(model: LanguageModel) -> LanguageModel:
    for index, layer in enumerate(model.layers):
        if isinstance(layer, LMU):
            model.layers[index] = PlainLMU(layer)
    return model


@contextmanager
def first_kernels() -> Iterator[None]:
    """The forms of this project's first measurements: kernels without AVX-512, and torch's own attention."""
    kernels, vectors, form = native.kernels, native.vectors, causal_attention.attention_form
    native.kernels = lambda: native.load_library(avx512=False)  # type: ignore[assignment]
    native.vectors = lambda: 0  # type: ignore[assignment]
    causal_attention.attention_form = lambda *_: "torch"
    yield
    native.kernels, native.vectors, causal_attention.attention_form = kernels, vectors, form


def as_first(run: Callable[[], Any]) -> Callable[[], None]:
    def first() -> None:
        with first_kernels():
            run()

    return first


def stepper(
    variant: str,
    d: int,
    vocab: int,
    kind: str,
    n: int = N,
    batch: int = BATCH,
    clip: float = math.inf,
    bf16: bool = False,
) -> Callable[[], None]:
    """A closure that takes one optimiser step on fixed random tokens; gradients are clipped if `clip` is finite.

    `bf16`: forward pass under torch's bfloat16 autocast, as `train --precision bfloat16` does.
    """
    model = build(resolve(variant, d, n, vocab), seed=1, compile="off" if kind == PLAIN else "auto")
    ids = torch.randint(vocab, (batch, n + 1), generator=torch.Generator().manual_seed(0))
    inputs_bn, targets_bn = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    if kind == PLAIN:
        model = plain(model)
        optimiser = torch.optim.Adam(model.parameters(), eps=1e-7, fused=True)

        def step() -> None:
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                logits = model.hidden(inputs_bn).flatten(0, 1) @ model.head_weight.T
                loss = F.cross_entropy(logits, targets_bn.flatten())
            loss.backward()
            if math.isfinite(clip):
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()

        return step
    objective, adam = Objective(model), Adam(model, (0.9, 0.999), 1e-7, 0.0)

    def step_ours() -> None:
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = objective(inputs_bn, targets_bn)
        loss.backward()
        if math.isfinite(clip):
            norm = torch.nn.utils.get_total_norm(adam.gradients())
            torch.nn.utils.clip_grads_with_norm_(adam.parameters.values(), clip, norm)
        adam.step(1e-3)

    return step_ours


def loss_call(kind: str, d: int, vocab: int, tokens: int) -> Callable[[], Any]:
    """The loss and its gradients to hidden states and weights."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(tokens, d, generator=generator, requires_grad=True)
    weight = (0.1 * torch.randn(vocab, d, generator=generator)).requires_grad_()
    targets = torch.randint(vocab, (tokens,), generator=generator)
    if kind == PLAIN:
        return lambda: torch.autograd.grad(F.cross_entropy(h @ weight.T, targets), (h, weight))
    return lambda: torch.autograd.grad(linear_cross_entropy(h, weight, targets), (h, weight))


# For `harness.peak_memory`; one thread, because threads add noise to memory.


def step_probe(**settings: Any) -> Callable[[], Any]:
    torch.set_num_threads(1)
    return stepper(**settings)


def loss_probe(**settings: Any) -> Callable[[], Any]:
    torch.set_num_threads(1)
    return loss_call(**settings)


# Measurements --------------------------------------------------------------------------------------------------------


def cases(quick: bool) -> list[Case]:
    if quick:
        return [("lmu", "S", 8192), ("transformer", "S", 8192)]
    asked = [(variant, size, vocab) for vocab in (4096, 50257) for variant in variants() for size in WIDTHS]
    return [*asked, ("lmu", "S", 8192)]


def timings(case: Case, args: argparse.Namespace, versions: dict[str, str]) -> dict[str, harness.Timing]:
    """Seconds of a step in each form."""
    variant, size, vocab = case
    d = WIDTHS[size]
    runs: dict[str, Callable[[], Any]] = {kind: stepper(variant, d, vocab, kind) for kind in (PLAIN, OURS)}
    peer = None
    if variant == "transformer" and args.peers:
        spec = resolve(variant, d, N, vocab)
        shape = {"d": d, "heads": spec.heads, "layers": spec.blocks, "n": N, "vocab": vocab, "batch": BATCH}
        peer = Peer("transformers", **shape, threads=args.threads, clock=args.clock)
        versions |= peer.versions
        runs[GPT2] = peer.run("step")
    found = harness.interleaved(runs, rounds=args.rounds, warm=2, clock=CLOCKS[args.clock])
    if peer is not None:
        peer.close()
    print(*case, {name: round(BATCH * N / timing.median) for name, timing in found.items()}, flush=True)
    return found


def memory_cells(case: Case) -> list[Cell]:
    """Peak of a step above the weights and Adam's moments: ours, and against plain eager."""
    variant, size, vocab = case
    settings = {"variant": variant, "d": WIDTHS[size], "vocab": vocab}
    ours, plain_ = (
        harness.peak_memory("benchmarks.step:step_probe", **settings, kind=kind)["peak"] / 1e6 for kind in (OURS, PLAIN)
    )
    return [cell(ours, better="lower", unit=" MB"), cell(ours / plain_, better="lower", unit="×")]


def share_of_peak(case: Case, timing: harness.Timing, args: argparse.Namespace) -> Cell:
    variant, size, vocab = case
    flops = BATCH * N * count(resolve(variant, WIDTHS[size], N, vocab)).flops_training
    low, high = timing.spread
    shares = [flops / seconds / float32_peak(args.threads, args.clock) for seconds in (timing.median, high, low)]
    return cell(*shares, better="higher", unit="%")


def steps_table(title: str, args: argparse.Namespace, chosen: list[Case], note: str, full: bool) -> Table:
    """Full: with targets, memory, share of the machine's peak, and peers."""
    rows, versions = [], {}
    for case in chosen:
        found = timings(case, args, versions)
        row: list[Any] = [*case[:2], str(case[2])]
        row += [reference(harness.rate(found[PLAIN], BATCH * N)), harness.rate(found[OURS], BATCH * N)]
        row += [harness.ratio(found[OURS], found[PLAIN], TARGETS.get(case, "") if full else "")]
        if full:
            row += [share_of_peak(case, found[OURS], args)]
            row += memory_cells(case) if case[1] == "S" else [None, None]
            row += [harness.ratio(found[OURS], found[GPT2]) if GPT2 in found else None]
        rows.append(row)
    columns = ["variant", "size", "vocabulary", "plain eager [tokens/s]", "ours [tokens/s]", "ours / plain eager"]
    columns += [SHARE, "peak memory", "memory / plain eager", f"ours / {GPT2}"] if full else []
    notes = [note, f"Batch {BATCH}, n = {N}; {conditions(args)}."]
    notes += [f"{name} {version}." for name, version in versions.items() if full and name != "torch"]
    return harness.table(title, columns, rows, notes, args.clock)


def loss_table(args: argparse.Namespace) -> Table:
    tokens, vocab = 2048, 50257
    rows = []
    for d in (48,) if args.quick else (48, 96):
        settings = {"d": d, "vocab": vocab, "tokens": tokens}
        runs = {kind: loss_call(kind, **settings) for kind in (PLAIN, OURS)}
        timing = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=CLOCKS[args.clock])
        peak = {k: harness.peak_memory("benchmarks.step:loss_probe", kind=k, **settings)["peak"] for k in runs}
        targets = ("loss_speed", "loss_memory") if d == 48 else ("", "")
        row: list[Any] = [f"d = {d}", reference(harness.rate(timing[PLAIN], tokens))]
        row += [harness.rate(timing[OURS], tokens), harness.ratio(timing[OURS], timing[PLAIN], targets[0])]
        peaks = {kind: cell(peak[kind] / 1e6, better="lower", unit=" MB") for kind in runs}
        row += [reference(peaks[PLAIN]), peaks[OURS]]
        rows.append([*row, cell(peak[OURS] / peak[PLAIN], better="lower", unit="×", target=targets[1])])
    columns = ["width", "full logits [tokens/s]", "ours [tokens/s]", "ours / full logits"]
    columns += ["full logits, peak", "ours, peak", "peak / full logits"]
    note = "`linear_cross_entropy` against full logits and `F.cross_entropy`, forward and backward."
    title = f"Cross-entropy over {vocab:,} classes, {tokens:,} tokens"
    return harness.table(title, columns, rows, [note, f"{conditions(args)}."], args.clock)


def measure(args: argparse.Namespace) -> harness.Section:
    judged = [case for case in cases(args.quick) if case in TARGETS]
    plain_note = "In an ordinary process, unlike `train`: freed blocks go back to the system."
    ordinary = steps_table("A training step, ordinary allocator", args, judged, plain_note, full=False)
    keep_freed_memory()
    note = (
        "Plain eager: reduced-order layer and full logits with torch's own gradients, fused Adam. Ours: the step that "
        "`train` takes. Freed memory is kept for reuse on all sides. The targets refer to this table. "
        "Share of the peak of the instructions (section Precision), not of a library's product. "
        "Peak memory, at S: above the weights and moments. S, M, L: d = 48, 96, 204."
    )
    steps = steps_table("A training step", args, cases(args.quick), note, full=True)
    return [steps, ordinary, loss_table(args)], remaining(steps)


def remaining(steps: Table) -> str:
    column = steps["columns"].index(SHARE)
    by_share = sorted(steps["rows"], key=lambda row: row[column]["value"])
    ends = [
        f"{row[column]['value']:.0%} ({row[0]} {row[1]}, vocabulary {row[2]})" for row in (by_share[0], by_share[-1])
    ]
    return (
        f"counted FLOPs run at {ends[0]} to {ends[1]} of the float32 peak. The rest is memory traffic, exponentials, "
        "torch's products where its library does not reach that peak, and, for the LSTM, a chain of small products."
    )


if __name__ == "__main__":
    harness.run_section("step", measure, __doc__, rounds=3)
