"""What a run will need: FLOPs, hours, memory and disk, from formulas (docs/plan.md). No torch, no pandas.

The workflow imports this module for the resources of its jobs, and `plan` for its table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lmu_scaling import experiment
from lmu_scaling.counting import count
from lmu_scaling.models import ModelSpec
from lmu_scaling.sections import Accelerator, Config
from lmu_scaling.spec import tokens_of

MB = 1 << 20
# Memory of a process before it holds any data: Python with torch; a GPU adds its context.
PROCESS_MB = 700
# Weights, gradients and Adam's two moments, float32.
STATE_BYTES = 16
# A checkpoint holds weights and moments; two are kept while a third is written.
CHECKPOINT_BYTES, CHECKPOINTS = 12, 3
# Logits exist for one chunk of tokens at a time (training/loss.py): twice, with their gradient.
LOSS_TOKENS = 512
# A job may take this much longer than its estimate before a scheduler stops it; it resumes if it is stopped.
SAFETY, LEAST_MINUTES = 2.0, 15
# Start of a training job: import of torch, the LMU's filters, a rehearsal of two steps.
START_SECONDS = 6.0
# Web text (OpenWebText2): 4.4 bytes per GPT-2 token; a cut vocabulary shatters words, half a byte per e-fold.
BYTES_PER_TOKEN, PER_FOLD, GPT2 = 4.4, 0.5, 50257
# OpenWebText2: 29.3 GB hold about 66.5 GB of text. Other compressed text is taken to be like it.
COMPRESSION, COMPRESSED = 2.27, (".zst", ".gz", ".parquet")


# ---------------------------------------------------------------------------------------------------------- training
@dataclass(frozen=True)
class Cost:
    """One training run."""

    tokens: int
    flops: float
    """Training and the validations on the way."""
    state_bytes: int
    sequence_bytes: int
    """What one sequence of the micro-batch adds."""
    loss_bytes: int
    weights_bytes: int
    batch: int

    def seconds(self, accelerator: Accelerator, tokens_per_second: float | None = None) -> float:
        """From a throughput that was measured, else from the stated share of the device's peak."""
        if tokens_per_second:
            return START_SECONDS + self.tokens / tokens_per_second
        return START_SECONDS + self.flops / (accelerator.tflops * 1e12 * accelerator.utilisation)

    def memory_bytes(self, micro_batch: int) -> int:
        return self.state_bytes + self.loss_bytes + micro_batch * self.sequence_bytes

    def micro_batch(self, memory: float) -> int:
        """Sequences per forward pass that fit into `memory` bytes, by halving, as the trainer does; 0 if none fits."""
        size = self.batch
        while size > 1 and self.memory_bytes(size) > memory:
            size = math.ceil(size / 2)
        return size if self.memory_bytes(size) <= memory else 0


def training_cost(spec: dict[str, Any]) -> Cost:
    model, rules = ModelSpec.from_dict(spec["model"]), spec["training"]
    counts, tokens = count(model), tokens_of(spec)
    validations = rules["steps"] // max(rules["validate_every"], 1)
    validated = validations * rules["validation_sequences"] * model.context
    return Cost(
        tokens=tokens,
        flops=float(tokens * counts.flops_training + validated * counts.flops_with_head),
        state_bytes=STATE_BYTES * counts.n_total,
        sequence_bytes=model.context * counts.activation_bytes,
        loss_bytes=2 * 4 * LOSS_TOKENS * model.vocab,
        weights_bytes=4 * counts.n_total,
        batch=rules["batch"],
    )


def is_gpu(accelerator: Accelerator) -> bool:
    return "cpu" not in accelerator.name.lower()


def training_resources(spec: dict[str, Any], accelerator: Accelerator) -> dict[str, int]:
    """`mem_mb` of the host, `runtime` in minutes and `gpu` of one training job on this accelerator."""
    cost = training_cost(spec)
    minutes = math.ceil(SAFETY * cost.seconds(accelerator) / 60)
    if is_gpu(accelerator):
        memory = 4 * PROCESS_MB + 2 * CHECKPOINT_BYTES * cost.state_bytes // STATE_BYTES // MB
        return {"mem_mb": memory, "runtime": max(LEAST_MINUTES, minutes), "gpu": 1}
    memory = PROCESS_MB + math.ceil(1.5 * cost.memory_bytes(cost.batch) / MB)
    return {"mem_mb": memory, "runtime": max(LEAST_MINUTES, minutes), "gpu": 0}


# -------------------------------------------------------------------------------------------------------------- data
@dataclass(frozen=True)
class Data:
    """The corpus in numbers; `known` once the tokens have been counted."""

    raw_bytes: int
    text_bytes: int
    documents: int
    tokens: int
    kept_tokens: int
    known: bool = False


def bytes_per_token(vocab: int) -> float:
    return max(1.0, BYTES_PER_TOKEN - PER_FOLD * math.log(GPT2 / vocab))


def corpus(config: Config, catalog: Path, manifest: dict[str, Any] | None = None) -> Data:
    """From the catalogue; a corpus of your own is measured where it lies, one that is only streamed is not known."""
    entry = yaml.safe_load(catalog.read_text("utf-8"))[config.corpus.source]
    if "size" in entry:
        raw = int(entry["size"])
        text = int(raw * _expansion(entry.get("file", "")))
    else:
        found = _files(config.corpus.path)
        raw = sum(size for _, size in found)
        text = int(sum(size * _expansion(name) for name, size in found))
    tokens = int(text / bytes_per_token(config.tokens.vocab))
    kept = min(tokens, config.corpus.target_tokens or tokens)
    documents = int(entry.get("documents") or text / 4000)
    if manifest:
        kept = sum(split["tokens"] for split in manifest["splits"].values())
    return Data(raw if entry["kind"] == "download" else 0, text, documents, tokens, kept, bool(manifest))


def _files(path: str | None) -> list[tuple[str, int]]:
    """Names and sizes."""
    place = Path(path) if path else None
    if place is None or not place.exists():
        return []
    files = [place] if place.is_file() else place.rglob("*")
    return [(file.name, file.stat().st_size) for file in files if file.is_file()]


def _expansion(name: str) -> float:
    """Bytes of text per byte of a file; the members of a tar are named in it (.jsonl.zst.tar)."""
    return COMPRESSION if any(ending in name for ending in COMPRESSED) else 1.0


def signature_bytes(config: Config, data: Data) -> int:
    """Per document: hash and sizes, and MinHash values where near duplicates are dropped."""
    near = next((f.permutations for f in config.corpus.filters if f.name == "near_duplicates"), 0)
    return data.documents * (24 + 4 * near)


def deduplicate_mb(data: Data) -> int:
    """Memory of the job that compares documents: 80 bytes each at 17 million; twice that again for candidate pairs."""
    return 1000 + math.ceil(240 * data.documents / MB)


def evaluated_sequences(config: Config, data: Data) -> int:
    """Of validation and test together."""
    shares = (config.corpus.split.validation, config.corpus.split.test)
    each = [int(data.kept_tokens * share / config.models.context) for share in shares]
    limit = config.evaluation.max_sequences
    return sum(min(windows, limit) if limit else windows for windows in each)


# -------------------------------------------------------------------------------------------------------------- disk
@dataclass(frozen=True)
class Disk:
    """Bytes by folder: `data/` for downloads, `results/` for the rest; `peak` includes what is deleted on the way."""

    download: int
    peak: int
    kept: int


def disk(config: Config, data: Data, parallel: int = 8) -> Disk:
    specs = [experiment.spec_of(config, run) for run in (*experiment.runs(config), *experiment.sweeps(config))]
    costs = [training_cost(spec) for spec in specs]
    weights = sum(cost.weights_bytes for cost in costs)
    largest = sorted((cost.weights_bytes for cost in costs), reverse=True)[:parallel]
    checkpoints = CHECKPOINTS * CHECKPOINT_BYTES // 4 * sum(largest)
    shards = 2 * data.kept_tokens
    parts = 2 * data.tokens + signature_bytes(config, data)
    runs = len(experiment.runs(config))
    evaluations = runs * (24 * evaluated_sequences(config, data) + 4 * 40 * config.models.context)
    small = len(costs) * 400_000 + 20 * MB  # histories, manifests, logs; figures and report
    kept = shards + weights + evaluations + small + data.documents
    return Disk(data.raw_bytes, kept + max(parts, checkpoints), kept)
