"""The LMU with implicit self-attention, forward and backward, against its rivals: `python -m benchmarks.layer`.

    python -m benchmarks.layer                    # one thread, processor seconds: for machines that others use too
    python -m benchmarks.layer --threads 2 --clock wall      # on a quiet machine
    python -m benchmarks.layer --quick            # size S only, few rounds, no keras-lmu

Sizes: S (d = 48, q = 100, q' = 10), M (96, 150, 15), L (204, 250, 25); n = 1024, theta = n.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import harness
from benchmarks.keras_peer import Peer
from benchmarks.layer_forms import SIZES, both_ways, forms, inputs

NAIVE = "naive: full M by FFT, then L, then attention"
CHANNEL = "per-channel FFT, memory only"
EAGER = "eager reduced order"
OURS = "compiled kernels"
INDUCTOR = "time tiles + torch.compile"
KERAS = "keras-lmu FFT layer + L + attention"
KERAS_XLA = "the same under XLA"
BARS = {NAIVE: 4.5, KERAS: 12.0, CHANNEL: 4.0, INDUCTOR: 1.3}


def speed(args: argparse.Namespace) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Tokens per second of each form at each size."""
    found: dict[str, dict[str, float]] = {}
    versions: dict[str, str] = {}
    for size in args.sizes:
        d, q, r = SIZES[size]
        leaves = inputs(size, args.batch, args.n)
        runs: dict[str, Callable[[], Any]] = {
            name: both_ways(form, leaves) for name, form in forms(size, args.n).items()
        }
        peers = {} if args.no_keras else {KERAS: False, KERAS_XLA: True}
        settings = {"d": d, "q": q, "r": r, "n": args.n, "batch": args.batch, "threads": args.threads}
        others = {name: Peer(**settings, xla=int(xla), cpu=int(args.clock == "cpu")) for name, xla in peers.items()}
        timings = harness.interleaved(runs | others, rounds=args.rounds, warm=2, clock=harness.CLOCKS[args.clock])
        for other in others.values():
            versions |= other.versions
            other.close()
        found[size] = {name: args.batch * args.n / timing.median for name, timing in timings.items()}
        print({name: round(value) for name, value in found[size].items()}, flush=True)
    return found, versions


def speed_tables(found: dict[str, dict[str, float]], versions: dict[str, str], args: argparse.Namespace) -> list[dict]:
    names = list(next(iter(found.values())))
    rows = [[name, *(f"{by[name]:,.0f} ({by[name] / by[NAIVE]:.1f}×)" for by in found.values())] for name in names]
    how = f"{args.threads} thread{'s' if args.threads > 1 else ''}, {args.clock} seconds, {args.rounds} rounds"
    notes = [
        f"Tokens per second and ratio to the naive form; batch {args.batch}, n = {args.n}, float32, {how}.",
        *([f"Versions of the peers: {', '.join(f'{k} {v}' for k, v in versions.items())}."] if versions else []),
        "Measure again: `python -m benchmarks.layer`.",
    ]
    tables = [harness.table("LMU + implicit attention: forward and backward", ["form", *found], rows, notes)]
    if all(OURS in by for by in found.values()):
        bars = [
            [rival, f"≥ {bar}×", *(f"{by[OURS] / by[rival]:.1f}×" for by in found.values())]
            for rival, bar in BARS.items()
            if all(rival in by for by in found.values())
        ]
        tables.append(harness.table("Compiled kernels against each rival", ["rival", "bar", *found], bars, notes[:1]))
    return tables


def memory_table(args: argparse.Namespace) -> dict[str, Any]:
    """Resident memory per token, in a child of its own for each number."""
    rows = []
    for size in args.sizes:
        base: dict[str, float] = {}
        for form in (NAIVE, EAGER, "torch only (no compiler)", OURS, "compiled kernels, recomputing"):
            settings = {"size": size, "form": form, "batch": 4, "n": args.n}
            probe = "benchmarks.layer_forms:memory_probe"
            peak = harness.peak_memory(probe, **settings, held=False)["peak"] / (4 * args.n)
            held = harness.peak_memory(probe, **settings, held=True)["held"] / (4 * args.n)
            base = {"peak": peak, "held": held} if form == EAGER else base
            ratios = [f"{peak / base['peak']:.2f}", f"{held / base['held']:.2f}"] if base else [None, None]
            rows.append([size, form, f"{held / 1e3:.1f}", f"{peak / 1e3:.1f}", *ratios])
    columns = ["size", "form", "held kB/token", "peak kB/token", "peak / eager reduced", "held / eager reduced"]
    notes = [
        "Growth of resident memory in a fresh process, batch 4: held between forward and backward, and at the peak.",
        "Bars: peak at most 0.67 of the eager reduced form at full speed; held at most 0.17 with recomputation.",
    ]
    return harness.table("LMU + implicit attention: memory", columns, rows, notes)


def generation_table(args: argparse.Namespace) -> dict[str, Any]:
    """One layer, one token at a time, against running the whole window again for each token."""
    from lmu_scaling.models import resolve
    from lmu_scaling.models.network import build

    rows = []
    for size in args.sizes:
        d, q, r = SIZES[size]
        layer = build(resolve("lmu", d, args.n, 100, q=q, q_reduced=r, theta=args.n, blocks=1), seed=0).layers[1]
        x_nd = torch.randn(args.n, d)

        def steps(count: int, layer: Any = layer, x_nd: torch.Tensor = x_nd, state: Any = None) -> Any:
            state = layer.initial_state(1, None) if state is None else state
            for t in range(count):
                _, state = layer.step(x_nd[None, t % len(x_nd)], state)
            return state

        with torch.inference_mode():
            late = steps(2048)
            timings = harness.interleaved(
                {
                    "first": lambda steps=steps: steps(64),
                    "late": lambda steps=steps, late=late: steps(64, state=late),
                    "window": lambda layer=layer, x_nd=x_nd: layer(x_nd[None]),
                },
                rounds=args.rounds,
                clock=harness.CLOCKS[args.clock],
            )
        early, after, window = 64 / timings["first"].median, 64 / timings["late"].median, 1 / timings["window"].median
        state_bytes = late.m_bqd.numel() * late.m_bqd.element_size()
        rows.append([size, early, after, window, f"{after / window:.0f}×", f"{state_bytes / 1e3:.0f} kB"])
    columns = ["size", "tokens/s, first 64", "tokens/s after 2,048", "window again, tokens/s", "ratio", "state"]
    notes = ["One LMU layer, batch 1; the state's size does not depend on how much was generated."]
    return harness.table("Recurrent generation", columns, rows, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="size S, three rounds, no keras-lmu")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=list(harness.CLOCKS), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--no-keras", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.sizes, args.rounds, args.no_keras = ["S"], 3, True
    torch.set_num_threads(args.threads)
    tables = [*speed_tables(*speed(args), args), memory_table(args), generation_table(args)]
    print(f"wrote {harness.publish('layer', tables).name}")


if __name__ == "__main__":
    main()
