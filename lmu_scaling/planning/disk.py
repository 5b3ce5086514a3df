"""Disk space: what an experiment needs, and a check before it starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lmu_scaling import experiment
from lmu_scaling.errors import DiskFull
from lmu_scaling.planning import cost_model
from lmu_scaling.runtime import byte_size
from lmu_scaling.sections import Config

# Two checkpoints of a run are kept while a third is written; this many runs train at once.
CHECKPOINTS, PARALLEL_RUNS = 3, 8


@dataclass(frozen=True)
class DiskSpace:
    """Bytes: `download` in data/, the rest in results/; `peak` includes temporary files."""

    download: int
    peak: int
    kept: int


def disk_space(config: Config, corpus: cost_model.CorpusSize) -> DiskSpace:
    runs, sweeps = experiment.runs(config), experiment.sweeps(config)
    weights = [cost_model.training_cost(experiment.spec_of(config, run)).weights_bytes for run in (*runs, *sweeps)]
    largest = sorted(weights, reverse=True)[:PARALLEL_RUNS]
    checkpoints = CHECKPOINTS * cost_model.CHECKPOINT_BYTES // 4 * sum(largest)
    shards = 2 * corpus.kept_tokens
    parts = 2 * corpus.tokens + cost_model.signature_bytes(config, corpus)
    evaluations = len(runs) * (24 * cost_model.evaluated_sequences(config, corpus) + 4 * 40 * config.models.context)
    small = len(weights) * 400_000 + 20 * cost_model.MB  # histories, manifests, logs; figures and report
    kept = shards + sum(weights) + evaluations + small + corpus.documents
    return DiskSpace(corpus.raw_bytes, kept + max(parts, checkpoints), kept)


def check_disk_space(config: Config, results: Path = Path("results"), downloads: Path = Path("data")) -> None:
    """Raise DiskFull if the experiment does not fit; the workflow calls this before its first job."""
    folder = results / config.experiment
    corpus = cost_model.corpus_size(config, folder / "tokens/index.json")
    space = disk_space(config, corpus)
    if corpus.known:  # the shards exist: raw text and parts are no longer needed
        space = DiskSpace(0, space.kept, space.kept)
    needs = [
        (results, max(0, space.peak - used_bytes(folder))),
        (downloads, max(0, space.download - used_bytes(downloads))),
    ]
    if _existing(results).stat().st_dev == _existing(downloads).stat().st_dev:
        needs = [(results, sum(need for _, need in needs))]
    for place, need in needs:
        if need > free_bytes(place):
            raise DiskFull(
                f"this experiment needs about {byte_size(need)} more, and {byte_size(free_bytes(place))} are free",
                str(place),
                "free some space, link the folder to a larger disk, or choose a smaller preset (see `snakemake plan`)",
            )


def free_bytes(folder: Path) -> int:
    """Free space on the disk of `folder`, which need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def used_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


def _existing(folder: Path) -> Path:
    """The folder, or its closest parent that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
