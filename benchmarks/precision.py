"""float32 and bfloat16 on this processor: its peaks, the loss, whole steps and their sub-layers.

    python -m benchmarks.precision            # about 5 minutes on two cores
    python -m benchmarks.precision --quick    # size S, one variant

Peaks are those of the instructions (peak.c), not of a library. "First kernels" are the forms that this project began
with: kernels without AVX-512 and torch's own attention. Freed memory is kept for reuse on all sides.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import harness
from benchmarks.harness import CLOCKS, conditions
from benchmarks.peak import KINDS, peaks
from benchmarks.peers import Peer
from benchmarks.step import OURS, PLAIN, WIDTHS, as_first, loss_call, stepper
from benchmarks.store import Cell, Table, cell, reference
from lmu_scaling.counting import count
from lmu_scaling.models import resolve, variants
from lmu_scaling.models.legendre import LegendreMemory
from lmu_scaling.models.lmu_kernels import Convolution
from lmu_scaling.models.lmu_products import pre_activations
from lmu_scaling.runtime import keep_freed_memory

N, BATCH, TOKENS, VOCAB = 1024, 2, 2048, 50257
BEFORE, SINGLE, HALF = "float32, first kernels", "float32", "bfloat16"
EAGER, GPT2, COMPILED = "plain eager", "Hugging Face GPT-2", "the same compiled"


# Forms ---------------------------------------------------------------------------------------------------------------


def rounded(run: Callable[[], Any]) -> Callable[[], Any]:
    def under_autocast() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            run()

    return under_autocast


# Peaks ---------------------------------------------------------------------------------------------------------------


def peak_table(args: argparse.Namespace, found: dict[str, float]) -> Table:
    size = 1536
    rows: list[list[Any]] = [
        [f"{kind}: instructions", reference(cell(value / 1e9, unit=" GFLOP/s"))] for kind, value in found.items()
    ]
    for dtype, kind in ((torch.float32, SINGLE), (torch.bfloat16, HALF)):
        a = torch.randn(size, size).to(dtype)
        timing = harness.interleaved({kind: lambda a=a: a @ a}, rounds=7, clock=CLOCKS[args.clock])[kind]
        rows.append(
            [f"torch's product of {size} × {size}, {kind}", reference(harness.rate(timing, 2e-9 * size**3, " GFLOP/s"))]
        )
    notes = [
        f"{args.threads} thread(s). Instructions: twelve independent multiply-adds in registers, by CPU time of one "
        "core, times threads."
    ]
    return harness.table("Peaks of the processor", ["what", "speed"], rows, notes, args.clock)


# Loss ----------------------------------------------------------------------------------------------------------------


def share(timing: harness.Timing, flops: float, peak: float | None) -> Cell | None:
    return cell(flops / timing.median / peak, better="higher", unit="%") if peak else None


def loss_table(args: argparse.Namespace, peak: dict[str, float]) -> Table:
    rows = []
    for d in (48,) if args.quick else WIDTHS.values():
        call = loss_call(OURS, d, VOCAB, TOKENS)
        runs = {BEFORE: as_first(call), SINGLE: call, HALF: rounded(call)}
        timing = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=CLOCKS[args.clock])
        print("loss", d, {name: round(TOKENS / found.median) for name, found in timing.items()}, flush=True)
        flops = 6.0 * d * VOCAB * TOKENS
        rows.append(
            [
                f"d = {d}",
                reference(harness.rate(timing[BEFORE], TOKENS)),
                harness.rate(timing[SINGLE], TOKENS),
                harness.rate(timing[HALF], TOKENS),
                harness.ratio(timing[SINGLE], timing[BEFORE], "loss_float32" if d > 48 else ""),
                harness.ratio(timing[HALF], timing[BEFORE], "loss_bfloat16"),
                share(timing[SINGLE], flops, peak.get(KINDS[1])),
                share(timing[HALF], flops, peak.get(KINDS[2])),
            ]
        )
    columns = ["width", f"{BEFORE} [tokens/s]", f"{SINGLE} [tokens/s]", f"{HALF} [tokens/s]", f"{SINGLE} / before"]
    columns += [f"{HALF} / before", "share of the float32 peak", "share of the bfloat16 peak"]
    notes = [f"Forward and backward, {TOKENS:,} tokens, {VOCAB:,} classes; before: {BEFORE}; {conditions(args)}."]
    return harness.table("The loss in float32 and bfloat16", columns, rows, notes, args.clock)


# Steps ---------------------------------------------------------------------------------------------------------------


def step_table(args: argparse.Namespace, peak: dict[str, float]) -> Table:
    rows: list[list[Any]] = []
    sizes = {"S": WIDTHS["S"]} if args.quick else WIDTHS
    for vocab in (4096, VOCAB):
        for variant in ("lmu",) if args.quick else variants():
            for size, d in sizes.items():
                shape = {"variant": variant, "d": d, "vocab": vocab, "kind": OURS, "n": N, "batch": BATCH}
                single, half = stepper(**shape), stepper(**shape, bf16=True)
                runs = {BEFORE: as_first(single), SINGLE: single, HALF: half}
                timing = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=CLOCKS[args.clock])
                speed = {name: round(BATCH * N / found.median) for name, found in timing.items()}
                print(variant, size, vocab, speed, flush=True)
                flops = BATCH * N * count(resolve(variant, d, N, vocab)).flops_training
                row = [variant, size, str(vocab), *(harness.rate(found, BATCH * N) for found in timing.values())]
                row += [harness.ratio(timing[SINGLE], timing[BEFORE])]
                row += [harness.ratio(timing[HALF], timing[BEFORE], f"bf16_{vocab}")]
                row += [harness.ratio(timing[HALF], timing[SINGLE])]
                rows.append([*row, share(timing[HALF], flops, peak.get(KINDS[2]))])
    columns = ["variant", "size", "vocabulary", *(f"{kind} [tokens/s]" for kind in (BEFORE, SINGLE, HALF))]
    columns += [f"{SINGLE} / before", f"{HALF} / before", f"{HALF} / {SINGLE}", "share of the bfloat16 peak"]
    notes = [f"Batch {BATCH}, n = {N}; before: {BEFORE}; {conditions(args)}."]
    return harness.table("A training step in float32 and bfloat16", columns, rows, notes, args.clock)


# Rivals --------------------------------------------------------------------------------------------------------------


def rivals_table(args: argparse.Namespace) -> Table:
    """Steps in bfloat16 against the usual ways to get one: Hugging Face's GPT-2, and plain torch under autocast."""
    rows: list[list[Any]] = []
    versions: dict[str, str] = {}
    sizes = {"S": WIDTHS["S"]} if args.quick else WIDTHS
    for vocab in (4096, VOCAB):
        for variant in ("lmu", "lmu_attention", "transformer"):
            for size, d in sizes.items():
                shape = {"variant": variant, "d": d, "vocab": vocab, "n": N, "batch": BATCH, "bf16": True}
                runs: dict[str, Callable[[], Any]] = {HALF: stepper(**shape, kind=OURS)}
                peers = gpt2_peers(d, vocab, args) if variant == "transformer" else {}
                runs |= {name: peer.run("step") for name, peer in peers.items()}
                if not peers:
                    runs[EAGER] = stepper(**shape, kind=PLAIN)
                timing = harness.interleaved(runs, rounds=args.rounds, warm=2, clock=CLOCKS[args.clock])
                for peer in peers.values():
                    versions |= peer.versions
                    peer.close()
                print(variant, size, vocab, {k: round(BATCH * N / t.median) for k, t in timing.items()}, flush=True)
                best = min((name for name in timing if name != HALF), key=lambda name: timing[name].median)
                target = "rivals_gpt2" if peers else "rivals_eager"
                row = [variant, size, str(vocab), harness.rate(timing[HALF], BATCH * N), best]
                row += [reference(harness.rate(timing[best], BATCH * N))]
                rows.append([*row, harness.ratio(timing[HALF], timing[best], target)])
    columns = ["variant", "size", "vocabulary", f"ours, {HALF} [tokens/s]", "rival", "rival [tokens/s]", "ours / rival"]
    notes = [
        f"All under bfloat16 autocast, batch {BATCH}, n = {N}; {conditions(args)}. {EAGER}: reduced-order layer and "
        f"full logits with torch's own gradients. {GPT2}: the shape of our transformer, as it is or compiled by "
        "torch.compile, whichever is faster.",
        *(f"{name} {version}." for name, version in versions.items() if name != "torch"),
    ]
    return harness.table("A training step in bfloat16 against others'", columns, rows, notes, args.clock)


def gpt2_peers(d: int, vocab: int, args: argparse.Namespace) -> dict[str, Peer]:
    spec = resolve("transformer", d, N, vocab)
    shape = {"d": d, "heads": spec.heads, "layers": spec.blocks, "n": N, "vocab": vocab, "batch": BATCH}
    how = {"threads": args.threads, "clock": args.clock, "bf16": True}
    return {
        GPT2: Peer("transformers", **shape, **how, compiled=False),
        COMPILED: Peer("transformers", **shape, **how, compiled=True),
    }


# Sub-layers ----------------------------------------------------------------------------------------------------------


def sub_layers(d: int, n: int, batch: int) -> dict[str, Callable[[], tuple[Tensor, list[Tensor]]]]:
    """Torch's own, each with what its gradient is taken to."""
    x = torch.randn(batch, n, d, requires_grad=True)
    up, down, qkv, lstm = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Linear(d, 3 * d), nn.LSTM(d, d, batch_first=True)
    heads = max(h for h in (1, 2, 3, 4) if d % h == 0)
    Q, K, V = (torch.randn(batch, heads, n, d // heads, requires_grad=True) for _ in range(3))
    return {
        "FFN": lambda: (down(F.gelu(up(x))), [x, *up.parameters(), *down.parameters()]),
        "projections": lambda: (qkv(x), [x, *qkv.parameters()]),
        "attention": lambda: (F.scaled_dot_product_attention(Q, K, V, is_causal=True), [Q, K, V]),
        "LSTM": lambda: (lstm(x)[0], [x, *lstm.parameters()]),
    }


def pre_activations_of(d: int, n: int, batch: int) -> dict[str, Callable[[], Any]]:
    """The LMU's pre-activations, forward and backward: our FFT in float32, and products over chunks in bfloat16."""
    spec = resolve("lmu", d, n, VOCAB)
    assert spec.q is not None
    assert spec.q_reduced is not None
    assert spec.theta is not None
    k, theta = 3 * spec.q_reduced, spec.theta
    memory = LegendreMemory(spec.q, theta)
    x_bnd = torch.randn(batch, n, d, requires_grad=True)
    L_kq = (torch.randn(k, spec.q) / spec.q**0.5).requires_grad_()
    bias_k = torch.zeros(k)

    def by_fft() -> None:
        filters_kn = memory.filters(n, torch.float32, x_bnd.device, L_kq)
        convolution = Convolution(filters_kn.detach(), d)
        y, dx_bnd = convolution.empty(batch), torch.empty_like(x_bnd)
        convolution.forward(x_bnd.detach(), y)
        convolution.backward(x_bnd.detach(), y, dx_bnd)
        torch.autograd.grad(filters_kn, L_kq, convolution.filter_gradient())

    def by_chunks() -> None:
        y_ro = pre_activations(x_bnd, L_kq, bias_k, theta, dtype=torch.bfloat16).y_ro
        torch.autograd.grad(y_ro, [x_bnd, L_kq], y_ro.detach())

    return {SINGLE: by_fft, HALF: by_chunks}


def sub_layer_table(args: argparse.Namespace) -> Table:
    rows: list[list[Any]] = []
    for d, n in ((32, 256), (48, N)) if args.quick else ((16, 256), (32, 256), *((d, N) for d in WIDTHS.values())):
        row: list[Any] = [f"d = {d}, n = {n}"]
        for name, forward in sub_layers(d, n, BATCH).items():

            def run(bf16: bool, forward: Callable[[], tuple[Tensor, list[Tensor]]] = forward) -> None:
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    out, inputs = forward()
                torch.autograd.grad(out.float().sum(), inputs)

            kinds = {SINGLE: lambda run=run: run(False), HALF: lambda run=run: run(True)}
            timing = harness.interleaved(kinds, args.rounds, warm=1, at_least=0.02, clock=CLOCKS[args.clock])
            row.append(reference(harness.ratio(timing[HALF], timing[SINGLE])))
            print(d, name, row[-1]["value"], flush=True)
        kinds = pre_activations_of(d, n, BATCH)
        timing = harness.interleaved(kinds, args.rounds, warm=1, at_least=0.02, clock=CLOCKS[args.clock])
        rows.append([*row, reference(harness.ratio(timing[HALF], timing[SINGLE]))])
    notes = [
        "Torch's bfloat16 autocast against its float32, forward and backward. On a CPU linear layers are bfloat16 "
        "from d = 48 on. Attention is not: our float32 kernel is faster. The LSTM's state is float32. The LMU's memory "
        "stays with the FFT in float32: products over chunks in bfloat16, as GPUs make them, are slower here.",
        f"{conditions(args)}.",
    ]
    columns = ["shape", "FFN", "projections", "attention", "LSTM", "LMU's memory: chunks against FFT"]
    return harness.table("Sub-layers: bfloat16 against float32", columns, rows, notes, args.clock)


def measure(args: argparse.Namespace) -> harness.Section:
    keep_freed_memory()
    peak = peaks(args.threads)
    tables = [peak_table(args, peak), loss_table(args, peak), step_table(args, peak)]
    tables += [rivals_table(args)] if args.peers else []
    return [*tables, sub_layer_table(args)], remaining(peak)


def remaining(peak: dict[str, float]) -> str:
    if not peak:
        return "this processor multiplies no bfloat16."
    ratio = peak[KINDS[2]] / peak[KINDS[0]]
    return (
        f"on this processor bfloat16 has {ratio:.1f} times the float32 peak of eight lanes: no product can gain more. "
        "The LMU's kernels are float32, because its form by products in bfloat16 is slower (last table). The LSTM "
        "rounds its products and keeps its recurrence in float32, one step after the other."
    )


if __name__ == "__main__":
    harness.run_section("precision", measure, __doc__, rounds=3)
