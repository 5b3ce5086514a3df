"""Results of an experiment that never ran: files as `training` and `evaluation` write them, from a known law.

    from tests.synthetic import Design, write_results
    runs = write_results(tmp_path / "results" / "toy", Design())

The truth is L(N, D) = E + A N^-a + B D^-b per variant, with seed noise and with test sequences of unequal difficulty
that all models share. `write_analysis` runs the whole of `lmu_scaling.analysis` on it, for figures to draw.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from lmu_scaling.counting import count
from lmu_scaling.evaluation.positions import FINE, bin_edges, bin_of_position
from lmu_scaling.models import resolve
from lmu_scaling.runtime import write_json
from lmu_scaling.spec import Run, spec_hash

REPOSITORY = Path(__file__).parents[1]
PAPER = REPOSITORY / "workflow" / "catalog" / "paper.yaml"


@dataclass(frozen=True)
class Law:
    """E + A N^-a + B D^-b [nats], and the share of the last tokens' gain along the context."""

    E: float = 0.0
    A: float = 10.0
    a: float = 0.07
    B: float = 0.0
    b: float = 0.3
    context_exponent: float = 0.5

    def loss(self, n: float, tokens: float) -> float:
        return self.E + self.A * n**-self.a + self.B * tokens**-self.b


LAWS = {
    "lmu": Law(A=10.7, a=0.072, B=30.0, b=0.35, context_exponent=1.2),
    "lmu_attention": Law(A=10.2, a=0.069, B=30.0, b=0.35),
    "transformer": Law(A=11.6, a=0.077, B=60.0, b=0.35),
    "lstm": Law(A=11.4, a=0.071, B=60.0, b=0.35, context_exponent=1.0),
}


@dataclass(frozen=True)
class Design:
    """Which runs there are and how noisy they are; sizes are named by their width."""

    variants: tuple[str, ...] = ("lmu", "lmu_attention", "transformer", "lstm")
    widths: tuple[int, ...] = (16, 24, 32, 48)
    seeds: tuple[int, ...] = (0, 1)
    multiples: tuple[float, ...] = (1.0,)
    budgets: dict[str, tuple[float, ...]] = field(default_factory=lambda: {"transformer": (0.5, 2.0, 4.0)})
    context: int = 256
    vocab: int = 4096
    batch: int = 16
    steps: int = 500
    seed_noise: float = 0.01
    sequence_noise: float = 0.4
    sequences: int = 120
    corpus: str = "embedded"
    laws: dict[str, Law] = field(default_factory=lambda: LAWS)
    seed: int = 0

    def runs(self) -> list[Run]:
        return [
            Run(variant, f"d{width}", multiple, seed)
            for variant in self.variants
            for width in self.widths
            for multiple in sorted({*self.multiples, *self.budgets.get(variant, ())})
            for seed in self.seeds
        ]

    def spec(self, run: Run) -> dict:
        model = resolve(run.variant, int(run.size[1:]), self.context, self.vocab)
        steps = max(1, round(self.steps * run.multiple))
        return {
            "format": 1,
            "model": model.asdict(),
            "data": {"corpus": self.corpus, "settings": "0123456789abcdef"},
            "training": {"batch": self.batch, "steps": steps, "seed": run.seed, "learning_rate": 3e-3},
        }

    def truth(self, run: Run) -> float:
        spec = self.spec(run)
        n = count(resolve(run.variant, int(run.size[1:]), self.context, self.vocab)).n_exact
        return self.laws[run.variant].loss(n, spec["training"]["steps"] * self.batch * self.context)


DEFAULT = Design()


def write_results(root: Path, design: Design = DEFAULT) -> list[str]:
    """Write training/ and evaluation/ of every run; returns the names of the runs."""
    rng = np.random.default_rng(design.seed)
    difficulty = rng.normal(0, design.sequence_noise, design.sequences)  # shared: all models read the same test set
    runs = design.runs()
    for run in runs:
        loss = design.truth(run) * math.exp(rng.normal(0, design.seed_noise))
        _write_training(root, design, run, loss, rng)
        _write_evaluation(root, design, run, loss, difficulty, rng)
    for variant in design.variants:
        for width in design.widths:
            rates = [1e-3, 3e-3, 1e-2]
            trials = [
                {"learning_rate": rate, "validation_loss": 6.0 + abs(math.log(rate / 3e-3)) / 10, "diverged": False}
                for rate in rates
            ]
            write_json(
                root / "training" / "tuning" / f"{variant}-d{width}.json",
                {"variant": variant, "size": f"d{width}", "learning_rate": 3e-3, "on_edge": False, "trials": trials},
            )
    return [run.name for run in runs]


def _write_training(root: Path, design: Design, run: Run, loss: float, rng: np.random.Generator) -> None:
    folder, spec = root / "training" / run.name, design.spec(run)
    steps, tokens = spec["training"]["steps"], spec["training"]["steps"] * design.batch * design.context
    counts = count(resolve(run.variant, int(run.size[1:]), design.context, design.vocab))
    write_json(folder / "spec.json", spec)
    result = {
        "spec_hash": spec_hash(spec),
        "tokens_digest": "feed",
        "steps": steps,
        "tokens": tokens,
        "epochs": tokens / 2e6,
        "final_loss": loss - 0.05,
        "validation_loss": loss + 0.01,
        "diverged": False,
        "n_exact": counts.n_exact,
        "n_kaplan": counts.n_kaplan,
        "n_total": counts.n_total,
        "flops_per_token": counts.flops_training,
        "flops_per_token_body": counts.flops_training_body,
        "learning_rate": 3e-3,
        "identity": spec_hash(spec),
        "machine": {
            "device": "cpu",
            "precision": "float32",
            "processes": 1,
            "micro_batch": design.batch,
            "seconds": 12.5,
            "tokens_per_second": tokens / 12.5,
            "mfu": 0.1,
            "data_wait_share": 0.01,
            "peak_memory_bytes": 10**9,
        },
    }
    write_json(folder / "result.json", result)
    step = np.unique(np.linspace(1, steps, 100).astype(int))
    share = step / steps
    start = math.log(design.vocab)
    curve = loss + (start - loss) * np.exp(-6 * share) + rng.normal(0, 0.03, len(step))
    validated = np.where(np.arange(len(step)) % 10 == 9, curve + 0.01, np.nan)
    history = {
        "step": step,
        "tokens": step * design.batch * design.context,
        "loss": curve,
        "learning_rate": 3e-3 * np.minimum(1, share / 0.04) * (1 + np.cos(np.pi * share)) / 2,
        "grad_norm": 1 + rng.random(len(step)),
        "validation_loss": validated,
    }
    pd.DataFrame(history).to_parquet(folder / "history.parquet", index=False)


def _write_evaluation(
    root: Path,
    design: Design,
    run: Run,
    loss: float,
    difficulty: np.ndarray,
    rng: np.random.Generator,
) -> None:
    folder, spec, n = root / "evaluation" / run.name, design.spec(run), design.context
    folder.mkdir(parents=True, exist_ok=True)
    position = np.arange(1, n + 1)
    shape = position ** -design.laws[run.variant].context_exponent
    curve = loss + 2.5 * (shape - shape.mean())
    own = rng.normal(0, design.sequence_noise / 10, (2, design.sequences))
    splits, rows, sequences = {}, [], []
    edges = bin_edges(n, FINE)
    which = bin_of_position(n, FINE)
    for index, split in enumerate(("validation", "test")):
        offset = difficulty + own[index]
        per_sequence = loss + offset
        se = float(per_sequence.std(ddof=1) / math.sqrt(design.sequences))
        mean = float(per_sequence.mean())
        splits[split] = {
            "loss": mean,
            "se_sequences": se,
            "se_documents": 1.1 * se,
            "bits_per_byte": mean / math.log(2) / 3.2,
            "tokens": n * design.sequences,
            "sequences": design.sequences,
            "documents": design.sequences // 2,
            "unigram_loss": 6.9,
        }
        noise = design.sequence_noise * 5 / math.sqrt(design.sequences)
        for axis in ("window", "document"):
            counts = np.full(n, design.sequences) if axis == "window" else design.sequences * np.exp(-position / n)
            values = curve + mean - loss + rng.normal(0, noise / 3, n)
            frame = {"split": split, "axis": axis, "position": position, "mean": values, "se": noise}
            rows.append(pd.DataFrame(frame | {"count": counts.astype(int)}))
        binned = np.array([curve[which == k].mean() for k in range(len(edges) - 1)])
        noise_kb = rng.normal(0, 2 / np.sqrt(np.diff(edges)), (design.sequences, len(edges) - 1))
        bins = binned + offset[:, None] + noise_kb
        frame = {"split": split, "window": np.arange(design.sequences), "loss": per_sequence, "tokens": n}
        sequences.append(pd.DataFrame(frame | {"bins": list(bins)}))
    write_json(folder / "summary.json", {"spec_hash": spec_hash(spec), "tokens_digest": "feed", "splits": splits})
    pd.concat(rows).to_parquet(folder / "per_token.parquet", index=False)
    pd.concat(sequences).to_parquet(folder / "sequences.parquet", index=False)


def settings(**changes: object) -> SimpleNamespace:
    """The sections `evaluation` and `analysis`, merged, with few draws."""
    complexity = SimpleNamespace(lengths=[64, 128, 256], d=16, q=20, repeats=1)
    values = {
        "draws": 200,
        "confidence": 0.95,
        "seed": 0,
        "reference": "kaplan_comment",
        "complexity": complexity,
        "max_sequences": None,
        "bins_per_octave": 2,
    }
    return SimpleNamespace(**values | changes)


def specs_json(design: Design = DEFAULT) -> str:
    """The argument `specs` of `analysis.counts`."""
    entries = [
        {"variant": v, "size": f"d{w}", "model": resolve(v, w, design.context, design.vocab).asdict()}
        for v in design.variants
        for w in design.widths
    ]
    return json.dumps(entries)


def write_analysis(root: Path, design: Design = DEFAULT, complexity: bool = True) -> list[str]:
    """All of analysis/ from synthetic runs; `complexity=False` skips the measurements, which need torch."""
    from lmu_scaling.analysis.fit import fit
    from lmu_scaling.analysis.per_token import per_token
    from lmu_scaling.analysis.table import runs_table

    runs, folder, chosen = write_results(root, design), root / "analysis", settings()
    runs_table(root, runs, folder / "runs.csv", folder / "history.parquet")
    per_token(root, runs, chosen, folder / "per_token.parquet", folder / "per_token_fits.csv")
    tables = {name: folder / f"{name}.csv" for name in ("curves", "multipliers")}
    fit(folder / "runs.csv", root, PAPER, chosen, folder / "fits.json", **tables)
    if complexity:
        _measure(folder, design, chosen)
    return runs


def _measure(folder: Path, design: Design, chosen: SimpleNamespace) -> None:
    from lmu_scaling.analysis.claims import claims
    from lmu_scaling.analysis.complexity import complexity
    from lmu_scaling.analysis.counts import counts

    counts(specs_json(design), folder / "counts.csv", folder / "table2.csv")
    complexity(chosen.complexity, folder / "complexity.csv", folder / "complexity_slopes.csv", device="cpu")
    claims(
        table=folder / "runs.csv",
        fits=folder / "fits.json",
        multipliers=folder / "multipliers.csv",
        per_token_fits=folder / "per_token_fits.csv",
        slopes=folder / "complexity_slopes.csv",
        counts=folder / "counts.csv",
        table2=folder / "table2.csv",
        paper=PAPER,
        settings=chosen,
        out_json=folder / "claims.json",
        out_csv=folder / "claims.csv",
        out_md=folder / "claims.md",
    )
