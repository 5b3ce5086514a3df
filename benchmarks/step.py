"""A whole training step, and its loss, against the plain eager way and against a peer: `python -m benchmarks.step`.

    python -m benchmarks.step                     # every variant and size: about 10 minutes on two cores
    python -m benchmarks.step --quick             # the LMU at d = 48 and vocabulary 8,192, and the loss

The forms are in step_forms.py; for the transformer, Hugging Face's GPT-2 of the same shape takes part (gpt2_peer.py).
As in benchmarks.layer, freed memory is kept for reuse on all sides.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks import gpt2_peer, harness, stage, surroundings
from benchmarks.machine import CLOCKS, how, options, settle, sgemm_peak
from benchmarks.step_forms import BATCH, OURS, PLAIN, WIDTHS, N, loss_call, stepper
from benchmarks.store import Cell, Table, aside, cell
from lmu_scaling.counting import count
from lmu_scaling.models import resolve, variants

GPT2 = "Hugging Face GPT-2"
JUDGED = {("lmu", "S", 50257): "step_50257", ("lmu", "S", 8192): "step_8192"}
Case = tuple[str, str, int]  # variant, size, vocabulary


def cases(args: argparse.Namespace) -> list[Case]:
    if args.quick:
        return [("lmu", "S", 8192), ("transformer", "S", 8192)]
    asked = [(variant, size, vocab) for vocab in (4096, 50257) for variant in variants() for size in args.sizes]
    return [*asked, ("lmu", "S", 8192)]


def measure(case: Case, args: argparse.Namespace) -> dict[str, harness.Timing]:
    """Seconds of a step in each form."""
    variant, size, vocab = case
    d = WIDTHS[size]
    runs: dict[str, Callable[[], Any]] = {kind: stepper(variant, d, vocab, kind) for kind in (PLAIN, OURS)}
    peer = None
    if variant == "transformer" and args.transformers:
        spec = resolve(variant, d, N, vocab)
        shape = {"d": d, "heads": spec.heads, "layers": spec.blocks, "n": N, "vocab": vocab, "batch": BATCH}
        peer = gpt2_peer.peer(**shape, threads=args.threads, clock=args.clock)
        args.versions |= peer.versions
        runs[GPT2] = peer.run("step")
    found = harness.interleaved(runs, rounds=args.rounds, warm=2, clock=CLOCKS[args.clock])
    if peer is not None:
        peer.close()
    print(*case, {name: round(BATCH * N / timing.median) for name, timing in found.items()}, flush=True)
    return found


def memory(case: Case, kind: str) -> float:
    """Peak of a step above what the model and Adam's moments hold [MB]."""
    variant, size, vocab = case
    settings = {"variant": variant, "d": WIDTHS[size], "vocab": vocab, "kind": kind}
    return harness.peak_memory("benchmarks.step_forms:step_probe", **settings)["peak"] / 1e6


def memory_cells(case: Case) -> list[Cell]:
    ours, rival = memory(case, OURS), memory(case, PLAIN)
    return [cell(ours, better="lower", unit=" MB"), cell(ours / rival, better="lower", unit="×")]


def share_of_peak(case: Case, timing: harness.Timing, args: argparse.Namespace) -> Cell:
    variant, size, vocab = case
    flops = BATCH * N * count(resolve(variant, WIDTHS[size], N, vocab)).flops_training
    low, high = timing.spread
    shares = [flops / seconds / sgemm_peak(args.clock) for seconds in (timing.median, high, low)]
    return cell(*shares, better="higher", unit="%")


# Tables --------------------------------------------------------------------------------------------------------------


def steps_table(title: str, args: argparse.Namespace, chosen: list[Case], note: str, kept: bool) -> Table:
    """Kept: freed memory is reused, bars are judged, memory is measured too."""
    rows = []
    for case in chosen:
        timings = measure(case, args)
        row: list[Any] = [*case[:2], str(case[2])]
        row += [aside(harness.rate(timings[PLAIN], BATCH * N)), harness.rate(timings[OURS], BATCH * N)]
        row += [harness.ratio(timings[OURS], timings[PLAIN], JUDGED.get(case, "") if kept else "")]
        if kept:
            row += [share_of_peak(case, timings[OURS], args)]
            row += memory_cells(case) if case[1] == "S" else [None, None]
            row += [harness.ratio(timings[OURS], timings[GPT2]) if GPT2 in timings else None]
        rows.append(row)
    columns = ["variant", "size", "vocabulary", "plain eager [tokens/s]", "ours [tokens/s]", "ours / plain eager"]
    if kept:
        columns += ["share of sgemm peak", "peak memory", "memory / plain eager", f"ours / {GPT2}"]
    return harness.table(title, columns, rows, [note, f"Batch {BATCH}, n = {N}; {how(args)}."], args.clock)


def loss_table(args: argparse.Namespace) -> Table:
    tokens, vocab = 2048, 50257
    rows = []
    for size, d in WIDTHS.items():
        if size != "S" and (args.quick or size == "L"):
            continue
        runs = {kind: loss_call(kind, d, vocab, tokens) for kind in (PLAIN, OURS)}
        timing = harness.interleaved(runs, rounds=args.rounds, warm=1, clock=CLOCKS[args.clock])
        settings = {"d": d, "vocab": vocab, "tokens": tokens}
        peak = {k: harness.peak_memory("benchmarks.step_forms:loss_probe", kind=k, **settings)["peak"] for k in runs}
        bars = ("loss_speed", "loss_memory") if size == "S" else ("", "")
        row: list[Any] = [f"d = {d}", aside(harness.rate(timing[PLAIN], tokens)), harness.rate(timing[OURS], tokens)]
        row += [harness.ratio(timing[OURS], timing[PLAIN], bars[0])]
        peaks = {kind: cell(peak[kind] / 1e6, better="lower", unit=" MB") for kind in runs}
        row += [aside(peaks[PLAIN]), peaks[OURS]]
        rows.append([*row, cell(peak[OURS] / peak[PLAIN], better="lower", unit="×", bar=bars[1])])
    columns = ["width", "full logits [tokens/s]", "ours [tokens/s]", "ours / full logits"]
    columns += ["full logits, peak", "ours, peak", "peak / full logits"]
    note = "`linear_cross_entropy` against full logits and `F.cross_entropy`, forward and backward."
    title = f"Cross-entropy over {vocab:,} classes, {tokens:,} tokens"
    return harness.table(title, columns, rows, [note, f"{how(args)}."], args.clock)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", nargs="+", default=list(WIDTHS), choices=list(WIDTHS))
    parser.add_argument("--no-transformers", dest="transformers", action="store_false")
    args = settle(parser.parse_args(), rounds=3)
    args.versions = {}
    judged = [case for case in cases(args) if case in JUDGED]
    plain_note = "In an ordinary process, unlike `train`: freed blocks go back to the system."
    ordinary = steps_table("A training step, ordinary allocator", args, judged, plain_note, kept=False)
    harness.keep_freed_memory()
    note = (
        "Plain eager: reduced-order layer and full logits with torch's own gradients, fused Adam. Ours: the step that "
        "`train` takes. Freed memory is kept for reuse on all sides; the bars are judged here. "
        "Peak memory, at S: above the weights and moments. S, M, L: d = 48, 96, 204."
    )
    steps = steps_table("A training step", args, cases(args), note, kept=True)
    steps["notes"] += [f"{name} {version}." for name, version in args.versions.items() if name != "torch"]
    tables = [steps, ordinary, stage.table(args), loss_table(args), surroundings.table(args)]
    harness.publish("step", tables, left(steps), args.quick)


def left(steps: Table) -> str:
    column = steps["columns"].index("share of sgemm peak")
    by_share = sorted(steps["rows"], key=lambda row: row[column]["value"])
    low, high = by_share[0], by_share[-1]
    ends = [f"{row[column]['value']:.0%} ({row[0]} {row[1]} at vocabulary {row[2]})" for row in (low, high)]
    return (
        f"counted FLOPs run at {ends[0]} to {ends[1]} of the sgemm peak; the rest is memory traffic, exponentials and, "
        "for the LSTM, its chain of small products."
    )


if __name__ == "__main__":
    main()
