"""The LMU with implicit self-attention against its rivals: speed, memory, generation. `python -m benchmarks.layer`.

    python -m benchmarks.layer                    # sizes S, M and L, with keras-lmu: about 12 minutes on two cores
    python -m benchmarks.layer --quick            # size S only, few rounds, no keras-lmu

Sizes: S (d = 48, q = 100, q' = 10), M (96, 150, 15), L (204, 250, 25); n = 1024, theta = n.

Freed memory is kept for reuse on all sides, as a caching allocator does: otherwise the rivals, whose temporaries are
larger, spend half their time on fresh pages, and we would be flattered. One table says what an ordinary process gives.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import harness, keras_peer
from benchmarks.figures import SPEED
from benchmarks.layer_forms import (
    CHANNEL,
    EAGER,
    INDUCTOR,
    NAIVE,
    OURS,
    OURS_AGAIN,
    SIZES,
    TORCH,
    both_ways,
    forms,
    forward_only,
    inputs,
)
from benchmarks.machine import CLOCKS, how, options, settle
from benchmarks.peers import Peer
from benchmarks.store import Cell, Table, aside, cell

KERAS = "keras-lmu FFT layer + L + attention (TensorFlow)"
KERAS_XLA = "the same keras-lmu form under XLA"
OWN = (OURS, OURS_AGAIN, TORCH)
BARS = {NAIVE: "layer_naive", KERAS: "layer_keras", CHANNEL: "layer_channel"}
AT_A_TIME = {"forward": forward_only, "both": both_ways}
Timings = dict[str, dict[str, harness.Timing]]  # by size, then by form


def measure(args: argparse.Namespace, way: str, only: tuple[str, ...] = (), keras: bool = True) -> Timings:
    """Seconds of each form at each size; `way` is "forward" or "both"."""
    found: Timings = {}
    for size in args.sizes:
        leaves = inputs(size, args.batch, args.n)
        runs: dict[str, Callable[[], Any]] = {
            name: AT_A_TIME[way](form, leaves) for name, form in forms(size, args.n).items() if not only or name in only
        }
        peers = keras_peers(size, args) if keras and args.keras else {}
        runs |= {name: peer.run(way) for name, peer in peers.items()}
        found[size] = harness.interleaved(runs, rounds=args.rounds, warm=2, clock=CLOCKS[args.clock])
        for peer in peers.values():
            args.versions |= peer.versions
            peer.close()
        print(size, way, {name: round(args.batch * args.n / t.median) for name, t in found[size].items()}, flush=True)
    return found


def keras_peers(size: str, args: argparse.Namespace) -> dict[str, Peer]:
    d, q, r = SIZES[size]
    shape = {"d": d, "q": q, "r": r, "n": args.n, "batch": args.batch, "threads": args.threads, "clock": args.clock}
    return {name: keras_peer.peer(**shape, xla=xla) for name, xla in ((KERAS, False), (KERAS_XLA, True))}


# Tables --------------------------------------------------------------------------------------------------------------


def speed_table(title: str, timings: Timings, args: argparse.Namespace) -> Table:
    names = list(next(iter(timings.values())))
    rows = []
    for name in names:
        rates = [harness.rate(by[name], args.batch * args.n) for by in timings.values()]
        rows.append([name, *(rates if name in OWN else map(aside, rates))])
    versions = ", ".join(f"{name} {version}" for name, version in args.versions.items())
    notes = [f"Tokens per second; batch {args.batch}, n = {args.n}, float32, {how(args)}; freed memory is kept."]
    return harness.table(title, ["form", *timings], rows, notes + ([f"{versions}."] if versions else []), args.clock)


def ratio_table(title: str, timings: Timings, args: argparse.Namespace, note: str, judged: bool) -> Table:
    """Ours against each rival."""
    rivals = [name for name in next(iter(timings.values())) if name not in OWN]
    rows: list[list[Any]] = []
    for rival in rivals:
        bar = BARS.get(rival, "") if judged else ""
        rows.append([f"{OURS} against {rival}", *(_ratio(by, rival, bar) for by in timings.values())])
    return harness.table(title, ["what against what", *timings], rows, [note], args.clock)


def _ratio(by: dict[str, harness.Timing], rival: str, bar: str) -> Cell | None:
    return harness.ratio(by[OURS], by[rival], bar) if OURS in by else None


def memory_table(args: argparse.Namespace) -> Table:
    """Resident memory per token, in a child of its own for each number."""
    rows = []
    probe, batch = "benchmarks.layer_forms:memory_probe", 4
    for size in args.sizes:
        base: dict[str, float] = {}
        for form in (EAGER, OURS, OURS_AGAIN) if args.quick else (NAIVE, EAGER, TORCH, OURS, OURS_AGAIN):
            settings = {"size": size, "form": form, "batch": batch, "n": args.n}
            peak = harness.peak_memory(probe, **settings, held=False)["peak"] / (batch * args.n) / 1e3
            held = max(harness.peak_memory(probe, **settings, held=True)["held"], 0) / (batch * args.n) / 1e3
            base = {"peak": peak, "held": held} if form == EAGER else base
            shares: list[Cell | None] = [None, None]
            if base:
                bars = ("layer_peak" if form == OURS else "", "layer_held" if form == OURS_AGAIN else "")
                shares = [
                    cell(a / base[key], better="lower", unit="×", bar=bar)
                    for a, key, bar in zip((peak, held), ("peak", "held"), bars, strict=True)
                ]
            numbers = [cell(value, better="lower", unit=" kB") for value in (held, peak)]
            rows.append([size, form, *(numbers if form in OWN else map(aside, numbers)), *shares])
    columns = ["size", "form", "held per token", "peak per token", "peak / eager reduced", "held / eager reduced"]
    notes = [
        f"Growth of resident memory in a fresh process, batch {batch}: held between forward and backward, and the peak "
        "of both. keras-lmu is left out: TensorFlow's own pools hide what a pass needs."
    ]
    return harness.table("LMU + implicit attention: memory", columns, rows, notes, args.clock)


def generation_table(args: argparse.Namespace) -> Table:
    """One layer, one token at a time, against running the whole window again for each token."""
    rows = []
    for size in args.sizes:
        timings, state_bytes = generate(size, args)
        after, window = timings["late"], timings["window"]
        per_token = harness.Timing(tuple(value / 64 for value in after.seconds))
        against = harness.ratio(per_token, window, "generation" if size == "L" else "")
        speeds = [harness.rate(timings["first"], 64), harness.rate(after, 64), aside(harness.rate(window, 1))]
        rows.append([size, *speeds, against, f"{state_bytes / 1e3:.0f} kB"])
    columns = ["size", "first 64 [tokens/s]", "after 2,048 [tokens/s]", "window again [tokens/s]", "ratio", "state"]
    notes = [
        f"One LMU layer, batch 1: recurrent steps against our parallel form over all {args.n} tokens for each new one; "
        "the state's size does not depend on how much was generated."
    ]
    return harness.table("Recurrent generation", columns, rows, notes, args.clock)


def generate(size: str, args: argparse.Namespace) -> tuple[dict[str, harness.Timing], int]:
    from lmu_scaling.models import resolve
    from lmu_scaling.models.network import build

    d, q, r = SIZES[size]
    layer: Any = build(resolve("lmu", d, args.n, 100, q=q, q_reduced=r, theta=args.n, blocks=1), seed=0).layers[1]
    x_nd = torch.randn(args.n, d)

    def steps(count: int, state: Any = None) -> Any:
        state = layer.initial_state(1, None) if state is None else state
        for t in range(count):
            _, state = layer.step(x_nd[None, t % len(x_nd)], state)
        return state

    with torch.inference_mode():
        late = steps(2048)
        runs = {"first": lambda: steps(64), "late": lambda: steps(64, late), "window": lambda: layer(x_nd[None])}
        timings = harness.interleaved(runs, rounds=args.rounds, clock=CLOCKS[args.clock])
    return timings, late.m_bqd.numel() * late.m_bqd.element_size()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--no-keras", dest="keras", action="store_false")
    args = settle(parser.parse_args(), rounds=5)
    args.versions = {}
    fast: tuple[str, ...] = ()
    if args.quick:  # torch.compile alone would take half a minute
        args.sizes, args.keras, fast = ["S"], False, (NAIVE, CHANNEL, EAGER, TORCH, OURS, OURS_AGAIN)
    ordinary = measure(args, "both", only=(NAIVE, CHANNEL, EAGER, OURS), keras=False)
    harness.keep_freed_memory()
    both, forward = measure(args, "both", fast), measure(args, "forward", fast)
    fair = "Forward and backward, freed memory kept on all sides: the bars are judged here."
    plain = "The same in an ordinary process, where large blocks go back to the system and come back as fresh pages."
    tables = [
        speed_table(SPEED, both, args),
        ratio_table("The layer against each rival", both, args, fair, judged=True),
        ratio_table("The layer against each rival, ordinary allocator", ordinary, args, plain, judged=False),
        speed_table("LMU + implicit attention: forward only", forward, args),
        memory_table(args),
        generation_table(args),
    ]
    harness.publish("layer", tables, left(both, args), args.quick)


def left(both: Timings, args: argparse.Namespace) -> str:
    """How far the kernels are from the machine's limits."""
    size = list(both)[-1]
    d, _, r = SIZES[size]
    if OURS not in both[size]:
        return "the kernels did not compile here, so the torch form is all there is."
    per_token = 4 * r * r * d + 2 * r * d  # QKᵀ, p·A and w·V
    rate = 3 * per_token * args.batch * args.n / both[size][OURS].median
    share = rate / (1e9 * harness.machine(args.clock)["sgemm_gflops"])
    return (
        f"at size {size} the attention's own arithmetic runs at {share:.0%} of the sgemm peak, in a pass that also "
        f"transforms {3 * r} rows per channel; reduced precision is untried, and where there is no C compiler, "
        f"{INDUCTOR} is the form to beat."
    )


if __name__ == "__main__":
    main()
