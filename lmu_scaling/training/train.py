"""The verb `train`: one run from spec and tokens to weights, history and result."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import save

from lmu_scaling.counting import Counts, count
from lmu_scaling.errors import Diverged
from lmu_scaling.models import ModelSpec
from lmu_scaling.runtime import atomic_write, canonical_json, read_json, sha256_bytes, si, write_json
from lmu_scaling.spec import spec_hash, tokens_of
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.checkpoint import Checkpoints
from lmu_scaling.training.device import Place, matmul_peak, peak_memory, place
from lmu_scaling.training.lock import exclusive
from lmu_scaling.training.loop import Trainer
from lmu_scaling.training.watch import Watch

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


def train(
    spec: Path,
    tokens: Path,
    live: Path,
    weights: Path,
    history: Path,
    result: Path,
    code: str = "",
    device: str = "auto",
    precision: str = "auto",
    threads: int = 1,
    micro_batch: int = 0,
    compile: str = "auto",
    checkpoint_seconds: float = 600.0,
    no_wait: bool = False,
    keep_going: bool = False,
) -> dict[str, Any]:
    """Train or resume. `keep_going` records a divergence as a result (a sweep wants to know) instead of failing."""
    settings = read_json(spec)
    where = place(device, precision, threads)
    stores = {split: TokenStore(tokens.parent, split) for split in ("train", "validation")}
    identity = identity_of(settings, stores["train"].digest, code)
    with exclusive(live / f"lock-{where.rank}", wait=not no_wait):
        if is_done(weights, history, result, identity):
            print("another job has finished this run already; nothing to do", flush=True)
        else:
            job = Job(settings, stores, where, identity, live, weights, history, result)
            job.fit(checkpoint_seconds, keep_going, micro_batch=micro_batch, compile=compile)
    where.close()
    tokens_trained = tokens_of(settings)
    flops = tokens_trained * count(ModelSpec.from_dict(settings["model"])).flops_training
    facts = {"spec": settings, "spec_hash": spec_hash(settings), "seed": settings["training"]["seed"]}
    return facts | {"tokens": tokens_trained, "flops": flops}


def identity_of(spec: dict[str, Any], tokens_digest: str, code: str) -> str:
    """Spec, tokens and code: a checkpoint goes on only under the same three."""
    return sha256_bytes(canonical_json([spec_hash(spec), tokens_digest, code]).encode())[:16]


def is_done(weights: Path, history: Path, result: Path, identity: str) -> bool:
    whole = weights.is_file() and history.is_file() and result.is_file()
    return whole and read_json(result).get("identity") == identity


@dataclass
class Job:
    """One run with its inputs, its place and its outputs."""

    spec: dict[str, Any]
    stores: dict[str, TokenStore]
    where: Place
    identity: str
    live: Path
    weights: Path
    history: Path
    result: Path

    def fit(self, checkpoint_seconds: float, keep_going: bool, **how: Any) -> None:
        counts = count(ModelSpec.from_dict(self.spec["model"]))
        checkpoints = Checkpoints(self.live / self.identity, self.identity)
        run = Trainer(self.spec, self.stores["train"], self.stores["validation"], self.where, **how)
        label = f"{self.spec['model']['variant']} d={self.spec['model']['d']}"
        total = tokens_of(self.spec)
        watch = Watch(self.live, label, total, counts.flops_training, matmul_peak(self.where), self.where.main)
        watch.say(f"{label}: {counts.n_exact:,} parameters, {si(total)} tokens on {self.where.device}")
        diverged = False
        try:
            run.run(watch, checkpoints, checkpoint_seconds, interrupted=signals())
        except Diverged as error:
            if not keep_going:
                raise
            print(error, flush=True)
            diverged = True
        finally:
            watch.close()
        if self.where.main:
            self.write(run, watch, counts, diverged)
            checkpoints.clear()

    def write(self, run: Trainer, watch: Watch, counts: Counts, diverged: bool) -> None:
        """Weights and history first: a result that exists says that all is there."""
        with atomic_write(self.weights, "wb") as file:
            file.write(save({name: p.detach().cpu().contiguous() for name, p in run.model.state_dict().items()}))
        with atomic_write(self.history, "wb") as file:
            pq.write_table(pa.Table.from_pylist(run.history, schema=SCHEMA), file)
        tokens = run.step * run.rules["batch"] * run.context
        speed = tokens / max(run.seconds, 1e-9)
        last = run.history[-1] if run.history else {"loss": None, "validation_loss": None}
        facts = {
            "identity": self.identity,
            "spec_hash": spec_hash(self.spec),
            "tokens_digest": run.train.digest,
            "steps": run.step,
            "tokens": tokens,
            "epochs": run.sampler.epochs(run.step),
            "learning_rate": run.rules["learning_rate"],
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
            "device": str(self.where.device),
            "precision": self.where.precision,
            "processes": self.where.world,
            "micro_batch": run.micro_batch,
            "seconds": run.seconds,
            "tokens_per_second": speed,
            "mfu": watch.utilisation(speed),
            "data_wait_share": watch.wait(run),
            "peak_memory_bytes": peak_memory(self.where),
        }
        write_json(self.result, {**facts, "machine": machine})
        loss = "diverged" if diverged else f"validation loss {last['validation_loss']:.4f} nats"
        print(f"done: {si(tokens)} tokens in {run.seconds:.0f} s ({si(speed)} tokens/s), {loss}", flush=True)


def signals() -> Callable[[], bool]:
    """Listen for SIGTERM and SIGUSR1 (what schedulers send before they kill); tells whether one has come."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda which, _: received.append(which))
    return lambda: bool(received)
