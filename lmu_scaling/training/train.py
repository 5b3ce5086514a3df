"""The job `train`: one run from spec and tokens to weights, history and result."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import save

from lmu_scaling.counting import Counts, count
from lmu_scaling.errors import Diverged
from lmu_scaling.jobs import Folder, Input, Output, job
from lmu_scaling.runtime import atomic_write, canonical_json, read_json, sha256_bytes, si, write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.checkpoint import Checkpoints
from lmu_scaling.training.compute import ComputeContext, Precision, compute_context, matmul_peak, peak_memory
from lmu_scaling.training.lock import exclusive
from lmu_scaling.training.loop import Trainer
from lmu_scaling.training.monitor import Monitor
from lmu_scaling.training.trackers import Trackers

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("tokens", pa.int64()),
        ("loss", pa.float64()),
        ("learning_rate", pa.float64()),
        ("grad_norm", pa.float64()),
        ("validation_loss", pa.float64()),
    ]
)


@job
def train(
    spec: Input,
    tokens: Input,
    live: Folder,
    weights: Output,
    history: Output,
    result: Output,
    device: str = "auto",
    precision: Precision = "auto",
    threads: int = 1,
    micro_batch: int = 0,
    compile: Literal["auto", "on", "off"] = "auto",
    checkpoint_seconds: float = 600.0,
    trackers: str = "none",
    no_wait: bool = False,
    keep_going: bool = False,
    code: str = "",
) -> dict[str, Any]:
    """Train one run, or resume it from its last checkpoint.

    Args:
        spec: spec.json of the run
        tokens: index of the token shards
        live: folder for checkpoints and the live log; survives a failed job
        weights: weights.safetensors
        history: history.parquet
        result: result.json
        device: auto, cpu or cuda
        precision: auto means bfloat16 products on a GPU, float32 on a CPU
        threads: CPU threads
        micro_batch: sequences per forward pass; 0 means the batch, or what fits a GPU; halved when memory runs out
        compile: use compiled kernels
        checkpoint_seconds: time between checkpoints
        trackers: where to send losses as well: none, or some of tensorboard,trackio,wandb
        no_wait: exit at once if another process trains this run, instead of waiting for it
        keep_going: record a divergence as a result instead of failing (for sweeps)
    """
    run_spec = RunSpec.read(spec)
    compute = compute_context(device, precision, threads)
    stores = {split: TokenStore(tokens.parent, split) for split in ("train", "validation")}
    identity = identity_of(run_spec, stores["train"].digest, code)
    with exclusive(live / f"lock-{compute.rank}", wait=not no_wait):
        if is_done(weights, history, result, identity):
            print("another job has finished this run already; nothing to do", flush=True)
        else:
            trainer = Trainer(run_spec, stores["train"], stores["validation"], compute, micro_batch, compile)
            this = TrainingJob(run_spec, trainer, compute, identity, live, weights, history, result, trackers)
            this.fit(checkpoint_seconds, keep_going)
    compute.close()
    flops = run_spec.tokens * count(run_spec.model).flops_training
    facts = {"spec": run_spec.asdict(), "spec_hash": run_spec.hash, "seed": run_spec.training.seed}
    facts |= {"device": str(compute.device), "precision": compute.precision}
    return facts | {"tokens": run_spec.tokens, "flops": flops}


def identity_of(spec: RunSpec, tokens_digest: str, code: str) -> str:
    """Spec, tokens and code: a checkpoint is resumed only under the same three."""
    return sha256_bytes(canonical_json([spec.hash, tokens_digest, code]).encode())[:16]


def is_done(weights: Path, history: Path, result: Path, identity: str) -> bool:
    complete = weights.is_file() and history.is_file() and result.is_file()
    return complete and read_json(result).get("identity") == identity


@dataclass
class TrainingJob:
    """One run with its trainer and its outputs."""

    spec: RunSpec
    trainer: Trainer
    compute: ComputeContext
    identity: str
    live: Path
    weights: Path
    history: Path
    result: Path
    trackers: str = "none"

    def fit(self, checkpoint_seconds: float, keep_going: bool) -> None:
        run, counts = self.trainer, count(self.spec.model)
        checkpoints = Checkpoints(self.live / self.identity, self.identity)
        label = f"{self.spec.model.variant} d={self.spec.model.d}"
        peak = matmul_peak(self.compute)
        main = self.compute.main
        trackers = Trackers(self.trackers, self.live, self.live.parent.name, self.spec.asdict()) if main else None
        monitor = Monitor(self.live, label, self.spec.tokens, counts.flops_training, peak, main, trackers)
        monitor.say(f"{label}: {counts.n_exact:,} parameters, {si(self.spec.tokens)} tokens on {self.compute.device}")
        diverged = False
        try:
            run.run(monitor, checkpoints, checkpoint_seconds, interrupted=signals())
        except Diverged as error:
            if not keep_going:
                raise
            print(error, flush=True)
            diverged = True
        finally:
            monitor.close()
        if self.compute.main:
            self.write(monitor, counts, diverged)
            checkpoints.clear()

    def write(self, monitor: Monitor, counts: Counts, diverged: bool) -> None:
        """Weights and history first: if result.json exists, all outputs exist."""
        run = self.trainer
        with atomic_write(self.weights, "wb") as file:
            file.write(save({name: p.detach().cpu().contiguous() for name, p in run.model.state_dict().items()}))
        with atomic_write(self.history, "wb") as file:
            pq.write_table(pa.Table.from_pylist(run.history, schema=SCHEMA), file)
        tokens = run.step * run.tokens_per_step
        speed = tokens / max(run.seconds, 1e-9)
        last = run.history[-1] if run.history else {"loss": None, "validation_loss": None}
        facts = {
            "identity": self.identity,
            "spec_hash": self.spec.hash,
            "tokens_digest": run.train.digest,
            "steps": run.step,
            "tokens": tokens,
            "epochs": run.sampler.epochs(run.step),
            "learning_rate": run.learning_rate,
            "embedding_scale": self.spec.model.embedding_scale,
            "final_loss": last["loss"],
            "validation_loss": last["validation_loss"],
            "diverged": diverged,
            "n_exact": counts.n_exact,
            "n_kaplan": counts.n_kaplan,
            "n_total": counts.n_total,
            "flops_per_token": counts.flops_training,
            "flops_per_token_body": counts.flops_training_body,
        }
        machine = {
            "device": str(self.compute.device),
            "precision": self.compute.precision,
            "processes": self.compute.world,
            "micro_batch": run.micro_batch,
            "seconds": run.seconds,
            "tokens_per_second": speed,
            "mfu": monitor.utilisation(speed),
            "data_wait_share": monitor.wait(run),
            "peak_memory_bytes": peak_memory(self.compute),
        }
        write_json(self.result, {**facts, "machine": machine})
        loss = "diverged" if diverged else f"validation loss {last['validation_loss']:.4f} nats"
        print(f"done: {si(tokens)} tokens in {run.seconds:.0f} s ({si(speed)} tokens/s), {loss}", flush=True)


def signals() -> Callable[[], bool]:
    """Catch SIGTERM and SIGUSR1 (schedulers send them before they kill); returns whether one has arrived."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda which, _: received.append(which))
    return lambda: bool(received)
