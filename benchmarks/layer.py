"""The LMU layer with implicit self-attention against other ways to compute it: speed, memory, generation.

    python -m benchmarks.layer            # sizes S, M and L, with keras-lmu: about 12 minutes on two cores
    python -m benchmarks.layer --quick    # size S only, few rounds, no keras-lmu

Sizes: S (d = 48, q = 100, q' = 10), M (96, 150, 15), L (204, 250, 25); n = 1024, theta = n. All forms have the same
parameters (L, p; biases are zero) and give the same m [b, n, d]; the per-channel form gives M only. Each rival is as
fast as its idea allows: time is innermost for the FFTs, one transform of x serves all rows, and tokens are contiguous
before the small products of the attention (1.1 to 1.4 times faster than strided).

Freed memory is kept for reuse on all sides, as a caching allocator does. Otherwise the rivals, whose temporaries are
larger, would spend half their time on fresh pages. One table shows the ratios with the ordinary allocator.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import harness
from benchmarks.harness import CLOCKS, conditions
from benchmarks.peers import Peer
from benchmarks.report import SPEED
from benchmarks.store import Cell, Table, cell, reference
from lmu_scaling.models import native, resolve
from lmu_scaling.models.implicit_attention import NativeLMU, TorchLMU
from lmu_scaling.models.legendre import impulse
from lmu_scaling.models.network import build
from lmu_scaling.runtime import keep_freed_memory

NAIVE = "naive torch: full M by FFT, then L, then attention"
CHANNEL = "per-channel FFT, torch: full M only, no L, no attention"
EAGER = "eager reduced order, torch: L·H by FFT, then attention"
INDUCTOR = "time tiles + torch.compile"
TORCH = "ours, torch only (no compiler)"
OURS = "ours: compiled kernels"
OURS_AGAIN = "ours: compiled kernels, recomputing"
KERAS = "keras-lmu FFT layer + L + attention (TensorFlow)"
KERAS_XLA = "the same keras-lmu form under XLA"
OWN = (OURS, OURS_AGAIN, TORCH)
TARGETS = {NAIVE: "layer_naive", KERAS: "layer_keras", CHANNEL: "layer_channel"}
SIZES = {"S": (48, 100, 10), "M": (96, 150, 15), "L": (204, 250, 25)}  # d, q, q'
BATCH, N, TILE = 2, 1024, 32
Timings = dict[str, dict[str, harness.Timing]]  # by size, then by form


# Forms ---------------------------------------------------------------------------------------------------------------


def attend_literally(y_bnkd: Tensor, p_i: Tensor) -> Tensor:
    """Eqs. 8–10 as printed: M' is formed."""
    Q, K, V = F.gelu(y_bnkd).chunk(3, dim=2)
    mixed_bnid = torch.softmax(Q @ K.transpose(-1, -2), dim=-1) @ V
    return torch.einsum("i,bnid->bnd", p_i, mixed_bnid)


def convolve(x_bnd: Tensor, filters_kn: Tensor) -> Tensor:
    """[b, n, k, d] by FFT along contiguous time, with torch's own gradient."""
    n = x_bnd.shape[1]
    X_bdf = torch.fft.rfft(x_bnd.transpose(1, 2), n=2 * n)
    F_kf = torch.fft.rfft(filters_kn, n=2 * n)
    y_bkdn = torch.fft.irfft(X_bdf[:, None] * F_kf[:, None], n=2 * n)[..., :n]
    return y_bkdn.permute(0, 3, 1, 2)


def tile_attention(y_tkdc: Tensor, p_i: Tensor) -> Tensor:
    """Time-tiled sums that torch.compile fuses into one loop."""
    Q, K, V = F.gelu(y_tkdc).unflatten(1, (3, -1)).unbind(1)
    A = torch.softmax((Q[:, :, None] * K[:, None]).sum(3), dim=2)
    w = (p_i[:, None, None] * A).sum(1)
    return (w[:, :, None] * V).sum(1)


class TiledConvolution(torch.autograd.Function):
    """y [b n/c, k, d, c] in tiles of time, for `tile_attention`; per sequence, with one set of FFTs backward."""

    @staticmethod
    def forward(ctx: Any, x_bnd: Tensor, filters_kn: Tensor) -> Tensor:
        b, n, d = x_bnd.shape
        k = len(filters_kn)
        X_bdf = torch.fft.rfft(x_bnd.transpose(1, 2), n=2 * n)
        F_kf = torch.fft.rfft(filters_kn, n=2 * n)
        y = x_bnd.new_empty(b, n // TILE, k, d, TILE)
        product = X_bdf.new_empty(k, d, n + 1)
        for i in range(b):
            torch.mul(X_bdf[i], F_kf[:, None], out=product)
            rows_kdn = torch.fft.irfft(product, n=2 * n)[..., :n]
            y[i].copy_(rows_kdn.view(k, d, -1, TILE).permute(2, 0, 1, 3))
        ctx.save_for_backward(X_bdf, F_kf)
        return y.flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        X_bdf, F_kf = ctx.saved_tensors
        (b, d, _), k = X_bdf.shape, len(F_kf)
        dy = grads[0].view(b, -1, k, d, TILE)
        n = dy.shape[1] * TILE
        dX_bdf, dF_kf = torch.empty_like(X_bdf), torch.zeros_like(F_kf)
        padded = dy.new_zeros(k, d, 2 * n)
        for i in range(b):
            padded[..., :n].view(k, d, -1, TILE).copy_(dy[i].permute(1, 2, 0, 3))
            dY_kdf = torch.fft.rfft(padded)
            dX_bdf[i] = (dY_kdf * F_kf.conj()[:, None]).sum(0)
            dF_kf += (dY_kdf * X_bdf[i].conj()).sum(1)
        dx_bdn = torch.fft.irfft(dX_bdf, n=2 * n)[..., :n]
        return dx_bdn.transpose(1, 2), torch.fft.irfft(dF_kf, n=2 * n)[..., :n]


def forms(size: str) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Each maps x, L and p to m."""
    _, q, r = SIZES[size]
    H_qn = impulse(q, N).tensor("H", N, torch.float32, torch.device("cpu"))
    bias_k = torch.zeros(3 * r)
    compiled = torch.compile(tile_attention, dynamic=False)

    def inductor(x: Tensor, L: Tensor, p: Tensor) -> Tensor:
        m_tdc = compiled(TiledConvolution.apply(x, L @ H_qn), p)
        return m_tdc.view(len(x), -1, *m_tdc.shape[1:]).transpose(2, 3).reshape(x.shape)

    def ours(function: Any, keep: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda x, L, p: function.apply(x, L @ H_qn, bias_k, p, 1.0, keep)

    found: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        NAIVE: lambda x, L, p: attend_literally(torch.einsum("kq,bnqd->bnkd", L, convolve(x, H_qn)), p),
        CHANNEL: lambda x, L, p: convolve(x, H_qn),
        EAGER: lambda x, L, p: attend_literally(convolve(x, L @ H_qn).contiguous(), p),
        INDUCTOR: inductor,
        TORCH: ours(TorchLMU, keep=True),
    }
    if native.kernels() is not None:
        found[OURS] = ours(NativeLMU, keep=True)
        found[OURS_AGAIN] = ours(NativeLMU, keep=False)
    return found


def inputs(size: str, batch: int) -> list[Tensor]:
    d, q, r = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    x, L, p = (torch.randn(shape, generator=generator) for shape in ((batch, N, d), (3 * r, q), (r,)))
    return [part.requires_grad_() for part in (x, L / q**0.5, p)]


def forward_only(form: Callable[..., Tensor], leaves: list[Tensor]) -> Callable[[], Any]:
    return torch.no_grad()(lambda: form(*leaves))


def both_ways(form: Callable[..., Tensor], leaves: list[Tensor]) -> Callable[[], Any]:
    """Forward and backward; the incoming gradient is m itself."""

    def run() -> None:
        m = form(*leaves)
        torch.autograd.grad(m, leaves, m.detach(), allow_unused=True)

    return run


WAYS = {"forward": forward_only, "both": both_ways}


def memory_probe(size: str, form: str, batch: int, held: bool) -> Callable[[], Any]:
    """For `harness.peak_memory`: the forward pass, whose graph stays alive, or forward and backward."""
    torch.set_num_threads(1)
    leaves, chosen = inputs(size, batch), forms(size)[form]
    return (lambda: chosen(*leaves)) if held else both_ways(chosen, leaves)


# Measurements --------------------------------------------------------------------------------------------------------


def timings(
    args: argparse.Namespace, sizes: list[str], way: str, only: tuple[str, ...], versions: dict[str, str] | None = None
) -> Timings:
    """Seconds of each form at each size; with `versions` the peers take part and leave theirs there."""
    found: Timings = {}
    for size in sizes:
        leaves = inputs(size, BATCH)
        runs = {name: WAYS[way](form, leaves) for name, form in forms(size).items() if not only or name in only}
        peers = keras_peers(size, args) if versions is not None and args.peers else {}
        runs |= {name: peer.run(way) for name, peer in peers.items()}
        found[size] = harness.interleaved(runs, rounds=args.rounds, warm=2, clock=CLOCKS[args.clock])
        for peer in peers.values():
            versions |= peer.versions  # type: ignore[operator]
            peer.close()
        print(size, way, {name: round(BATCH * N / t.median) for name, t in found[size].items()}, flush=True)
    return found


def keras_peers(size: str, args: argparse.Namespace) -> dict[str, Peer]:
    d, q, r = SIZES[size]
    shape = {"d": d, "q": q, "r": r, "n": N, "batch": BATCH, "threads": args.threads, "clock": args.clock}
    return {name: Peer("keras-lmu", **shape, xla=xla) for name, xla in ((KERAS, False), (KERAS_XLA, True))}


def speed_table(title: str, found: Timings, args: argparse.Namespace, versions: dict[str, str]) -> Table:
    rows = []
    for name in next(iter(found.values())):
        rates = [harness.rate(by[name], BATCH * N) for by in found.values()]
        rows.append([name, *(rates if name in OWN else map(reference, rates))])
    notes = [f"Tokens per second; batch {BATCH}, n = {N}, float32, {conditions(args)}; freed memory is kept."]
    notes += [f"{', '.join(f'{name} {version}' for name, version in versions.items())}."] if versions else []
    return harness.table(title, ["form", *found], rows, notes, args.clock)


def ratio_table(title: str, found: Timings, args: argparse.Namespace, note: str, targets: dict[str, str]) -> Table:
    """Ours against each rival."""
    rows: list[list[Any]] = []
    for rival in (name for name in next(iter(found.values())) if name not in OWN):
        ratios = [harness.ratio(by[OURS], by[rival], targets.get(rival, "")) for by in found.values() if OURS in by]
        rows.append([f"{OURS} against {rival}", *(ratios or [None] * len(found))])
    return harness.table(title, ["what against what", *found], rows, [note], args.clock)


def memory_table(args: argparse.Namespace, sizes: list[str]) -> Table:
    """Resident memory per token; each number is measured in a fresh process."""
    batch, rows = 4, []
    for size in sizes:
        base: dict[str, float] = {}
        for form in (EAGER, OURS, OURS_AGAIN) if args.quick else (NAIVE, EAGER, TORCH, OURS, OURS_AGAIN):
            found = {key: _kilobytes(size, form, batch, key) for key in ("held", "peak")}
            base = found if form == EAGER else base
            targets = {"peak": "layer_peak" if form == OURS else "", "held": "layer_held" if form == OURS_AGAIN else ""}
            shares: list[Cell | None] = [
                cell(found[key] / base[key], better="lower", unit="×", target=target) if base else None
                for key, target in targets.items()
            ]
            numbers = [cell(value, better="lower", unit=" kB") for value in found.values()]
            rows.append([size, form, *(numbers if form in OWN else map(reference, numbers)), *shares])
    columns = ["size", "form", "held per token", "peak per token", "peak / eager reduced", "held / eager reduced"]
    notes = [
        f"Growth of resident memory in a fresh process, batch {batch}: held between forward and backward, and the peak "
        "of both. keras-lmu is left out: TensorFlow's memory pools hide what a pass needs."
    ]
    return harness.table("LMU + implicit attention: memory", columns, rows, notes, args.clock)


def _kilobytes(size: str, form: str, batch: int, key: str) -> float:
    """Per token."""
    settings = {"size": size, "form": form, "batch": batch, "held": key == "held"}
    return max(harness.peak_memory("benchmarks.layer:memory_probe", **settings)[key], 0) / (batch * N) / 1e3


def generation_table(args: argparse.Namespace, sizes: list[str]) -> Table:
    """One layer, one token at a time, against running the whole window again for each token."""
    rows = []
    for size in sizes:
        found, state_bytes = generate(size, args)
        window, late = found["window"], found["late"]
        per_token = harness.Timing(tuple(value / 64 for value in late.seconds))
        ratio = harness.ratio(per_token, window, "generation" if size == "L" else "")
        speeds = [harness.rate(found["first"], 64), harness.rate(late, 64), reference(harness.rate(window, 1))]
        rows.append([size, *speeds, ratio, f"{state_bytes / 1e3:.0f} kB"])
    columns = ["size", "first 64 [tokens/s]", "after 2,048 [tokens/s]", "window again [tokens/s]", "ratio", "state"]
    notes = [
        f"One LMU layer, batch 1: recurrent steps against our parallel form over all {N} tokens for each new one. "
        "The size of the state does not depend on how much was generated."
    ]
    return harness.table("Recurrent generation", columns, rows, notes, args.clock)


def generate(size: str, args: argparse.Namespace) -> tuple[dict[str, harness.Timing], int]:
    """Timings, and the bytes of the recurrent state."""
    d, q, r = SIZES[size]
    layer: Any = build(resolve("lmu", d, N, 100, q=q, q_reduced=r, theta=N, blocks=1), seed=0).layers[1]
    x_nd = torch.randn(N, d)

    def steps(count: int, state: Any = None) -> Any:
        state = layer.initial_state(1, None) if state is None else state
        for t in range(count):
            _, state = layer.step(x_nd[None, t % N], state)
        return state

    with torch.inference_mode():
        late = steps(2048)
        runs = {"first": lambda: steps(64), "late": lambda: steps(64, late), "window": lambda: layer(x_nd[None])}
        found = harness.interleaved(runs, rounds=args.rounds, clock=CLOCKS[args.clock])
    return found, late.m_bqd.numel() * late.m_bqd.element_size()


def measure(args: argparse.Namespace) -> harness.Section:
    sizes, fast, versions = list(SIZES), (), {}
    if args.quick:  # torch.compile alone would take half a minute
        sizes, fast, args.peers = ["S"], (NAIVE, CHANNEL, EAGER, TORCH, OURS, OURS_AGAIN), False
    ordinary = timings(args, sizes, "both", (NAIVE, CHANNEL, EAGER, OURS))
    keep_freed_memory()
    both, forward = (timings(args, sizes, way, fast, versions) for way in ("both", "forward"))
    fair = "Forward and backward, freed memory is kept on all sides. The targets refer to this table."
    plain = "The same in an ordinary process: large blocks go back to the system and return as fresh pages."
    tables = [
        speed_table(SPEED, both, args, versions),
        ratio_table("The layer against each rival", both, args, fair, TARGETS),
        ratio_table("The layer against each rival, ordinary allocator", ordinary, args, plain, {}),
        speed_table("LMU + implicit attention: forward only", forward, args, versions),
        memory_table(args, sizes),
        generation_table(args, sizes),
    ]
    return tables, remaining(both, args)


def remaining(both: Timings, args: argparse.Namespace) -> str:
    """How far the kernels are from the machine's limits."""
    if OURS not in both["S"]:
        return "the kernels did not compile here, so only the torch form was measured."
    found = {size: nanoseconds(timings[OURS], size, args.threads) for size, timings in both.items()}
    transforms = 2 * 2.5 * 2 * math.log2(2 * N) / harness.machine(args.clock)["fft_gflops"] * args.threads
    each = ", ".join(f"{value:.1f} ns at {size}" for size, value in found.items())
    return (
        f"a pre-activation (a row of Q, K or V, one channel, one token), forward and backward, costs {each}, on one "
        f"core. Its two real transforms alone (110 FLOPs) take {transforms:.1f} ns at the speed of torch's FFT; the "
        "rest is the product with the filters' transform, GELU, softmax, their gradients, and passes over memory."
    )


def nanoseconds(timing: harness.Timing, size: str, threads: int) -> float:
    """Of one core, for one pre-activation."""
    d, _, r = SIZES[size]
    return 1e9 * timing.median * threads / (BATCH * N * 3 * r * d)


if __name__ == "__main__":
    harness.run_section("layer", measure, __doc__, rounds=5)
