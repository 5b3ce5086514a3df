"""Cost model: FLOPs, time and memory of runs, and the size of the corpus, from formulas (docs/plan.md).

The workflow imports this module for the resources of its jobs, so it needs neither torch nor pandas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from lmu_scaling import experiment
from lmu_scaling.config import read
from lmu_scaling.corpus.filters import CorpusFilter
from lmu_scaling.counting import TrainingMemory, count, gpu_work, training_memory
from lmu_scaling.models.architecture import GPUWork
from lmu_scaling.paths import DATASETS
from lmu_scaling.runtime import read_json
from lmu_scaling.sections import Accelerator, Config
from lmu_scaling.spec import Run, RunSpec

MB = 1 << 20
# Memory of a process before it holds any data: Python with torch; a GPU adds its context.
PROCESS_MB = 700
# A checkpoint holds the weights and both moments, float32.
CHECKPOINT_BYTES = 12
# Reserved time is the estimate times SAFETY, and at least LEAST_MINUTES. A job that is stopped resumes.
SAFETY, LEAST_MINUTES = 2.0, 15
# Start of a training job: import of torch, the LMU's filters, a rehearsal of two steps.
TRAIN_START_SECONDS = 6.0
EVALUATE_START_SECONDS = 5.0
# Web text (OpenWebText2): 4.4 bytes per GPT-2 token; a smaller vocabulary costs half a byte per e-fold.
BYTES_PER_TOKEN, BYTES_PER_FOLD, GPT2_VOCAB = 4.4, 0.5, 50257
# OpenWebText2: 29.3 GB hold about 66.5 GB of text. Other compressed text is assumed to be like it.
COMPRESSION, COMPRESSED = 2.27, (".zst", ".gz", ".parquet")
# Bytes of text that one core processes per second, by rule; measured on the smoke preset.
TEXT_PER_SECOND = {"survey": 20e6, "encode": 8e6, "deduplicate": 100e6, "shard": 400e6, "index": 800e6, "fetch": 20e6}


# Share of a GPU's memory bandwidth that kernels reach, and of its memory that the first micro-batch may fill.
BANDWIDTH_SHARE, MEMORY_SHARE = 0.8, 0.85
# Time between dependent launches of cuDNN's LSTM.
STEP_SECONDS = 7e-6


# ---------------------------------------------------------------------------------------------------------- training
@dataclass(frozen=True)
class TrainingCost:
    """One training run."""

    tokens: int
    flops: float
    """Training and the validations during it."""
    work: GPUWork
    """Of one token on a GPU."""
    flops_per_token: int
    memory: dict[str, TrainingMemory]
    """By kind of accelerator."""
    weights_bytes: int
    batch: int

    def seconds(self, accelerator: Accelerator, tokens_per_second: float | None = None) -> float:
        """From the measured throughput if given, else from FLOPs and bytes."""
        if tokens_per_second:
            return TRAIN_START_SECONDS + self.tokens / tokens_per_second
        return TRAIN_START_SECONDS + self.flops / self.flops_per_token * self.seconds_per_token(accelerator)

    def seconds_per_token(self, accelerator: Accelerator) -> float:
        """Products and memory traffic one after the other, each at the share of its peak that a GPU reaches.

        Without a bandwidth, FLOPs of Table 2 at the stated share of the peak.
        """
        peak = accelerator.tflops * 1e12 * accelerator.utilisation
        if accelerator.bandwidth_gbs is None:
            return self.flops_per_token / peak
        traffic = self.work.bytes / (BANDWIDTH_SHARE * accelerator.bandwidth_gbs * 1e9)
        waiting = self.work.steps * STEP_SECONDS / max(1, self.micro_batch(accelerator))
        return self.work.flops / peak + traffic + waiting

    def memory_bytes(self, kind: str, micro_batch: int) -> int:
        return self.memory[kind].total(micro_batch)

    def micro_batch(self, accelerator: Accelerator) -> int:
        """Sequences per forward pass that fit, found by halving as the trainer does; 0 if none."""
        memory = MEMORY_SHARE * accelerator.memory_gb * 1e9
        return self.memory[accelerator.kind].micro_batch(self.batch, memory)


def training_cost(spec: RunSpec) -> TrainingCost:
    model, training = spec.model, spec.training
    counts, tokens = count(model), spec.tokens
    validations = training.steps // max(training.validate_every, 1)
    validated = validations * training.validation_sequences * model.context
    return TrainingCost(
        tokens=tokens,
        flops=float(tokens * counts.flops_training + validated * counts.flops_with_head),
        work=gpu_work(model),
        flops_per_token=counts.flops_training,
        memory={kind: training_memory(model, gpu=kind == "gpu") for kind in ("cpu", "gpu")},
        weights_bytes=4 * counts.n_total,
        batch=training.batch,
    )


def training_resources(cost: TrainingCost, accelerator: Accelerator) -> dict[str, int]:
    """`mem_mb` of the host, `runtime` in minutes and `gpu` of one training job on this accelerator."""
    gpu = accelerator.kind == "gpu"
    if gpu:
        memory = 4 * PROCESS_MB + 2 * CHECKPOINT_BYTES // 4 * cost.weights_bytes // MB
    else:
        memory = PROCESS_MB + math.ceil(1.5 * cost.memory_bytes("cpu", cost.batch) / MB)
    return {"mem_mb": memory, "runtime": reserved_minutes(cost.seconds(accelerator)), "gpu": int(gpu)}


def reserved_minutes(seconds: float) -> int:
    return max(LEAST_MINUTES, math.ceil(SAFETY * seconds / 60))


# ------------------------------------------------------------------------------------------------------------ corpus
@dataclass(frozen=True)
class CorpusSize:
    """Size of the corpus; `known` is true once its tokens have been counted."""

    raw_bytes: int
    text_bytes: int
    documents: int
    tokens: int
    kept_tokens: int
    known: bool = False


def corpus_size(config: Config, manifest: Path | None = None) -> CorpusSize:
    """Size from the catalogue, or of local files; 0 for a source that is only streamed.

    `manifest`: tokens/index.json. If it exists, its token counts replace the estimate.
    """
    entry = read(DATASETS)[config.corpus.source]
    if "size" in entry:
        raw = min(int(entry["size"]), config.corpus.sample or int(entry["size"]))
        text = int(raw * _expansion(entry.get("file", "")))
    else:
        found = _file_sizes(config.corpus.path)
        raw = sum(size for _, size in found)
        text = int(sum(size * _expansion(name) for name, size in found))
    tokens = int(text / bytes_per_token(config.tokens.vocab))
    kept = min(tokens, config.corpus.target_tokens or tokens)
    documents = int((None if config.corpus.sample else entry.get("documents")) or text / 4000)
    known = False
    if manifest is not None and manifest.is_file():
        known = True
        kept = sum(split["tokens"] for split in read_json(manifest)["splits"].values())
    return CorpusSize(raw if entry["kind"] == "download" else 0, text, documents, tokens, kept, known)


def bytes_per_token(vocab: int) -> float:
    return max(1.0, BYTES_PER_TOKEN - BYTES_PER_FOLD * math.log(GPT2_VOCAB / vocab))


def _file_sizes(path: str | None) -> list[tuple[str, int]]:
    source = Path(path) if path else None
    if source is None or not source.exists():
        return []
    files = [source] if source.is_file() else source.rglob("*")
    return [(file.name, file.stat().st_size) for file in files if file.is_file()]


def _expansion(name: str) -> float:
    """Bytes of text per byte of a file; a tar's name says how its members are compressed (.jsonl.zst.tar)."""
    return COMPRESSION if any(ending in name for ending in COMPRESSED) else 1.0


def signature_bytes(config: Config, corpus: CorpusSize) -> int:
    """Hash and sizes of each document, and what the filters that compare documents need."""
    filters = [item for item in config.corpus.filters if isinstance(item, CorpusFilter)]
    each = corpus.text_bytes // max(corpus.documents, 1)
    return corpus.documents * (24 + sum(item.signature_bytes(each) for item in filters))


def deduplicate_mb(config: Config, corpus: CorpusSize) -> int:
    """Memory of deduplication.

    80 bytes per document at 17 million documents, and twice that for candidate pairs; the signatures of the held-out
    documents three times over, and those of one part twice (`corpus/overlap.py`).
    """
    signatures = signature_bytes(config, corpus)
    held_out = 3 * (1 - config.corpus.split.train) * signatures + 2 * signatures / config.corpus.parts
    return 1000 + math.ceil((240 * corpus.documents + held_out) / MB)


# -------------------------------------------------------------------------------------------------------- evaluation
def evaluated_sequences(config: Config, corpus: CorpusSize) -> int:
    """Sequences of validation and test together."""
    shares = (config.corpus.split.validation, config.corpus.split.test)
    each = [int(corpus.kept_tokens * share / config.models.context) for share in shares]
    limit = config.evaluation.max_sequences
    return sum(min(windows, limit) if limit else windows for windows in each)


def evaluation_seconds(config: Config, corpus: CorpusSize, run: Run, accelerator: Accelerator) -> float:
    """With a bandwidth, a forward pass in float32 is assumed to cost as much as a training step in bfloat16."""
    cost, flops = training_cost(experiment.spec_of(config, run)), evaluation_flops(config, corpus, run)
    if accelerator.bandwidth_gbs is None:
        return EVALUATE_START_SECONDS + flops / cost.flops_per_token * cost.seconds_per_token(accelerator)
    tokens = evaluated_sequences(config, corpus) * config.models.context
    return EVALUATE_START_SECONDS + tokens * cost.seconds_per_token(accelerator)


def evaluation_flops(config: Config, corpus: CorpusSize, run: Run) -> float:
    tokens = evaluated_sequences(config, corpus) * config.models.context
    return float(tokens * count(experiment.model_spec(config, run.variant, run.size)).flops_with_head)
