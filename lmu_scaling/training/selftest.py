"""The job `selftest`: on a user's GPU, check every kernel and form against float64 and time them against plain torch.

No GPU was at hand when the GPU forms were written. Kernels also prove themselves at their first use; this job shows the
errors and the speed, and what to report. On a CPU it checks the CPU's forms, at smaller sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import Output, job
from lmu_scaling.models import gpu_attention, gpu_head, resolve
from lmu_scaling.models.forms import has_triton, head_form, lmu_form
from lmu_scaling.models.layers.lmu import LMU
from lmu_scaling.models.loss import linear_cross_entropy
from lmu_scaling.models.network import build
from lmu_scaling.models.verification import BOUNDS, Comparison
from lmu_scaling.runtime import si, write_json
from lmu_scaling.training.compute import ComputeContext, Precision, compute_context, matmul_peak, peak_memory
from lmu_scaling.training.loop import Objective

Form = Callable[[Tensor], Tensor]
SECONDS = 0.3  # of each timing
# d, n, sequences and classes of the checks and timings
SIZES = {"cuda": ((48, 1024, 16, 50257), (204, 1024, 16, 50257)), "cpu": ((16, 64, 2, 500), (48, 256, 2, 4096))}


@dataclass(frozen=True)
class Check:
    """Largest error of one result against float64, relative to its largest value."""

    what: str
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


@dataclass(frozen=True)
class Timing:
    """Tokens per second, forwards and backwards."""

    what: str
    ours: float
    plain: float
    compiled: float | None


@job
def selftest(
    device: str = "auto", precision: Precision = "auto", threads: int = 1, out: Output | None = None
) -> dict[str, Any]:
    """Check this machine's kernels against float64 and time them; run it first on a new GPU.

    Args:
        device: auto, cpu or cuda
        precision: auto means bfloat16 products on a GPU, float32 on a CPU
        threads: CPU threads
        out: where to write the results as JSON
    """
    compute = compute_context(device, precision, threads)
    sizes = SIZES[compute.device.type]
    checks = [check for size in sizes for check in checked(compute, *size)]
    timings = [timing for size in sizes for timing in timed(compute, *size)]
    record = {"machine": described(compute), "checks": list(map(asdict, checks)), "timings": list(map(asdict, timings))}
    print("\n".join([*lines_of(checks, timings), "", f"machine: {record['machine']}"]), flush=True)
    if out is not None:
        write_json(out, record)
    failed = [check.what for check in checks if not check.passed]
    if failed:
        raise ResultsError(
            f"{len(failed)} results are wrong on this device: {', '.join(failed)}",
            str(compute.device),
            "train with --compile off, and paste everything above into an issue of this project",
        )
    print("all results are right; to report speed, paste everything above into an issue of this project", flush=True)
    return record


# ------------------------------------------------------------------------------------------------------------ checks
def checked(compute: ComputeContext, d: int, n: int, b: int, classes: int) -> list[Check]:
    dtype = torch.bfloat16 if compute.precision == "bfloat16" else torch.float32
    device, label = compute.device, f"d = {d}"
    found = compared("layer", layer_results, compute, d, n, min(b, 2)) + compared(
        "head", head_results, compute, d, 300, classes
    )
    if device.type == "cuda" and has_triton():
        found += [("kernel: attention", entry) for entry in gpu_attention.compare(d, reduced(d), dtype, device)]
        found += [("kernel: head", entry) for entry in gpu_head.compare(d, dtype, device)]
    return [Check(f"{what} {entry.name}, {label}", entry.error, BOUNDS[dtype]) for what, entry in found]


def compared(what: str, results: Callable[..., list[Tensor]], *arguments: Any) -> list[tuple[str, Comparison]]:
    compute, *sizes = arguments
    ours = results(compute, *sizes)
    exact = results(None, *sizes)
    names = ("value", *(f"gradient {i}" for i in range(1, len(ours))))
    rows = zip(names, ours, exact, strict=True)
    return [(what, Comparison(name, found.cpu(), wanted)) for name, found, wanted in rows]


def layer_results(compute: ComputeContext | None, d: int, n: int, b: int) -> list[Tensor]:
    """One LMU layer and its gradients; in float64 on the CPU without a device."""
    layer = build(resolve("lmu", d, n, 300, softmax_scale="sqrt_d"), seed=1, compile="auto" if compute else "off")
    lmu = next(layer for layer in layer.layers if isinstance(layer, LMU))
    x = F.layer_norm(torch.randn(b, n, d, generator=torch.Generator().manual_seed(2)), (d,))
    return _with_gradients(compute, lmu, x)


def head_results(compute: ComputeContext | None, d: int, tokens: int, classes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    head = torch.nn.Linear(d, classes, bias=False)
    torch.nn.init.normal_(head.weight, std=0.3, generator=generator)
    h = torch.randn(tokens, d, generator=generator)
    targets = torch.randint(classes, (tokens,), generator=generator)

    def loss(h_td: Tensor) -> Tensor:
        if compute is None:
            return F.cross_entropy(head(h_td), targets)
        return linear_cross_entropy(h_td, head.weight, targets.to(h_td.device))

    return _with_gradients(compute, head, h, loss)


def _with_gradients(
    compute: ComputeContext | None, module: torch.nn.Module, x: Tensor, run: Callable[[Tensor], Tensor] | None = None
) -> list[Tensor]:
    if compute is None:
        module, x = module.double(), x.double()
        y = (run or module)(x.requires_grad_())
    else:
        module, x = module.to(compute.device), x.to(compute.device)
        with compute.autocast():
            y = (run or module)(x.requires_grad_())
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])]


# ----------------------------------------------------------------------------------------------------------- timings
def timed(compute: ComputeContext, d: int, n: int, b: int, classes: int) -> list[Timing]:
    device, tokens = compute.device, b * n
    model = build(resolve("lmu", d, n, classes), seed=1).to(device)
    layer = next(layer for layer in model.layers if isinstance(layer, LMU))
    x = torch.randn(b, n, d, device=device)
    ids = torch.randint(classes, (b, n), device=device)
    h, objective = x.flatten(0, 1), Objective(model)

    def plain_layer(x_bnd: Tensor) -> Tensor:
        y_bnkd = layer.memory(x_bnd, layer.L.flatten(0, 1)) + layer.bias.flatten()[:, None]
        return gpu_attention.attend_tokens(y_bnkd, layer.p, layer.scale)

    def plain_loss(h_td: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(h_td, model.head_weight), ids.flatten())

    def plain_step(ids_bn: Tensor) -> Tensor:
        layers = [plain_layer if isinstance(part, LMU) else part for part in model.layers]
        x_bnd = F.embedding(ids_bn, model.head_weight)
        for norm, part in zip(model.norms, layers, strict=False):
            x_bnd = x_bnd + part(norm(x_bnd))
        return plain_loss(model.norms[-1](x_bnd).flatten(0, 1))

    def loss(h_td: Tensor) -> Tensor:
        return linear_cross_entropy(h_td, model.head_weight, ids.flatten())

    rivals: dict[str, tuple[Form, Form, Tensor]] = {
        "layer": (layer, plain_layer, x),
        "head": (loss, plain_loss, h),
        "step": (lambda ids_bn: objective(ids_bn, ids_bn), plain_step, ids),
    }
    found = []
    for what, (ours, plain, argument) in rivals.items():
        forms = [ours, plain] + ([torch.compile(plain, dynamic=False)] if device.type == "cuda" else [])
        speeds = [tokens / seconds_of(compute, form, argument) for form in forms]
        found.append(Timing(f"{what}, d = {d}", speeds[0], speeds[1], speeds[2] if len(speeds) > 2 else None))
    return found


def seconds_of(compute: ComputeContext, form: Form, argument: Tensor) -> float:
    """Fastest of the runs within SECONDS, after two runs that compile and warm up."""
    best, runs, start = float("inf"), 0, time.perf_counter()
    while runs < 3 or time.perf_counter() - start < SECONDS:
        if runs == 2:
            start = time.perf_counter()
        begin = time.perf_counter()
        with compute.autocast():
            value = form(argument).float().mean()
        value.backward()
        if compute.device.type == "cuda":
            torch.cuda.synchronize(compute.device)
        best, runs = min(best, time.perf_counter() - begin), runs + 1
    return best


# ------------------------------------------------------------------------------------------------------------ output
def lines_of(checks: list[Check], timings: list[Timing]) -> list[str]:
    lines = [f"{'check':<42} {'error':>9} {'allowed':>9}"]
    lines += [f"{c.what:<42} {c.error:9.1e} {c.bound:9.0e}  {'ok' if c.passed else 'WRONG'}" for c in checks]
    lines += ["", f"{'tokens/s, forwards and backwards':<42} {'ours':>9} {'torch':>9} {'compiled':>9}"]
    for t in timings:
        compiled = si(t.compiled) if t.compiled else "–"
        lines.append(f"{t.what:<42} {si(t.ours):>9} {si(t.plain):>9} {compiled:>9}  {t.ours / t.plain:.2f}×")
    return lines


def described(compute: ComputeContext) -> dict[str, Any]:
    kind = compute.device.type
    forms = [lmu_form(kind, torch.float32, 6, True), head_form(kind, torch.float32, 48, True)]
    name = torch.cuda.get_device_name(compute.device) if kind == "cuda" else "CPU"
    return {
        "device": name,
        "torch": torch.__version__,
        "precision": compute.precision,
        "forms": forms,
        "matmul_tflops": matmul_peak(compute) / 1e12,
        "peak_memory_bytes": peak_memory(compute),
    }


def reduced(d: int) -> int:
    q_reduced = resolve("lmu", d, 1024, 300).q_reduced
    assert q_reduced is not None
    return q_reduced
