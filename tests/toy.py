"""Small, learnable tokens and specs for tests of training and evaluation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.models import resolve
from lmu_scaling.runtime import sha256_file, write_json

VOCAB = 300


def write_tokens(folder: Path, train: int = 6000, other: int = 1500, seed: int = 0) -> Path:
    """Shards in which each token mostly follows from the one before it; returns the path of the index."""
    rng = np.random.default_rng(seed)
    follows = rng.permutation(VOCAB)
    shards, splits = [], {}
    for split, length in (("train", train), ("validation", other), ("test", other)):
        stream = np.zeros(length, "<u2")
        for i in range(1, length):
            stream[i] = follows[stream[i - 1]] if rng.random() < 0.8 else rng.integers(VOCAB)
        stream[99::100] = VOCAB - 1
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"00000.{split}.bin"
        stream.tofile(path)
        facts = {"tokens": length, "documents": length // 100, "bytes": 3 * length}
        shards.append({"file": path.name, "split": split, "sha256": sha256_file(path), "part": 0, **facts})
        splits[split] = {**facts, "unigram_loss": float(np.log(VOCAB))}
    index = {
        "vocab": VOCAB,
        "eot": VOCAB - 1,
        "dtype": "<u2",
        "digest": f"toy-{seed}",
        "splits": splits,
        "shards": shards,
    }
    write_json(folder / "index.json", index)
    return folder / "index.json"


def spec(variant: str, steps: int = 12, **training: Any) -> dict[str, Any]:
    rules = {
        "batch": 4,
        "steps": steps,
        "seed": 1,
        "learning_rate": 0.01,
        "betas": [0.9, 0.999],
        "eps": 1e-7,
        "weight_decay": 0.0,
        "clip": 1.0,
        "warmup": 0.1,
        "plateau": None,
        "validate_every": 5,
        "validation_sequences": 4,
    }
    model = asdict(resolve(variant, 8, 24, VOCAB))
    return {
        "format": 1,
        "model": model,
        "data": {"corpus": "toy", "settings": "toy"},
        "training": {**rules, **training},
    }
