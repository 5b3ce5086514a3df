"""Synthetic experiments with known scaling laws, for tests of analysis, paper and audit, proofs and benchmarks.

    runs = write_results(root, Design())     # training/ and evaluation/ of every run, as the workflow writes them
    write_experiment(root, Design())         # the same, then config.json, tokens/report.csv and all of analysis/

The true loss is L(N, D) = E + A N^-a + B D^-b per variant, plus seed noise, and test sequences of unequal difficulty
that all models share. `analysis/` is computed by `lmu_scaling.analysis` itself.
"""

from __future__ import annotations

import functools
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from lmu_scaling.counting import count
from lmu_scaling.evaluation.positions import FINE, bin_edges, bin_of_position
from lmu_scaling.models import ModelSpec, resolve
from lmu_scaling.runtime import write_json
from lmu_scaling.spec import DataSpec, Run, RunSpec, TrainingSpec

REPOSITORY = Path(__file__).parents[1]
PAPER = REPOSITORY / "lmu_scaling" / "catalog" / "paper.yaml"
LEARNING_RATE = 3e-3
# What rules of the stage `paper` pass to figures and tables.
FIGURE_SETTINGS = {"experiment": "embedded", "corpus": "state_of_the_union", "tokens": 3.3e6}


@dataclass(frozen=True)
class Law:
    """E + A N^-a + B D^-b [nats]; the loss at position i of the context falls like i^-context_exponent."""

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
    "transformer_modern": Law(A=11.2, a=0.077, B=50.0, b=0.35),
    "transformer_rotary": Law(A=11.4, a=0.077, B=55.0, b=0.35),
    "lstm": Law(A=11.4, a=0.071, B=60.0, b=0.35, context_exponent=1.0),
}
POSITIONS = {
    "transformer": "learned",
    "transformer_modern": "rotary",
    "transformer_rotary": "rotary",
    "lmu_attention": "rotary",
}
BUILT_AS = dict.fromkeys(
    ("transformer_modern", "transformer_rotary"), "transformer"
)  # only the counts of a model are used here


@dataclass(frozen=True)
class Design:
    """The runs of an experiment and their noise; sizes are named by their width."""

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
    documents: int | None = None  # in the test split; default: two sequences each
    train_tokens: float = 2e6  # in the training split
    edges: dict[str, str] = field(default_factory=dict)  # `tuning_edge` of a variant; default: inside the sweep
    precision: dict[str, str] = field(default_factory=dict)
    tuning_multiple: float = 0.25
    alternatives: tuple[dict, ...] = ()  # rows of sensitivity.csv: variant, size, setting, value, reference, effect
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

    def document_of(self) -> np.ndarray:
        """The document of each test sequence."""
        documents = min(self.documents or max(1, self.sequences // 2), self.sequences)
        return np.arange(self.sequences) * documents // self.sequences

    def model(self, run: Run) -> ModelSpec:
        built = BUILT_AS.get(run.variant, run.variant)
        return resolve(built, int(run.size[1:]), self.context, self.vocab, embedding_scale=1.0)

    def models(self) -> dict[str, ModelSpec]:
        """Each model once, by `<variant>-<size>`."""
        return {f"{run.variant}-{run.size}": self.model(run) for run in self.runs()}

    def spec(self, run: Run) -> RunSpec:
        training = TrainingSpec(
            batch=self.batch,
            steps=max(1, round(self.steps * run.multiple)),
            seed=run.seed,
            learning_rate=LEARNING_RATE,
            betas=(0.9, 0.999),
            eps=1e-7,
            weight_decay=0.0,
            clip=1.0,
            warmup=0.04,
            plateau=None,
            validate_every=10,
            validation_sequences=8,
        )
        return RunSpec(self.model(run), DataSpec(self.corpus, "0123456789abcdef"), training)

    def tokens(self, run: Run) -> int:
        return self.spec(run).tokens

    def truth(self, run: Run) -> float:
        return self.laws[run.variant].loss(count(self.model(run)).n_exact, self.tokens(run))


DEFAULT = Design()
_THREE_SEEDS = {"seeds": (0, 1, 2), "budgets": {"transformer": (2.0, 5.0)}, "sequences": 40}
SMALL_SCALE = Design(widths=(16, 20, 24, 32, 40, 48), steps=800, **_THREE_SEEDS)
PAPER_SCALE = Design(
    widths=(48, 64, 92, 120, 144, 204), context=1024, vocab=50257, batch=512, steps=25000, **_THREE_SEEDS
)


# Runs ----------------------------------------------------------------------------------------------------------------


def write_results(root: Path, design: Design = DEFAULT) -> list[str]:
    """Write training/ and evaluation/ of every run; returns the names of the runs."""
    rng = np.random.default_rng(design.seed)
    document = design.document_of()  # shared: all models read the same test set
    difficulty = rng.normal(0, design.sequence_noise / math.sqrt(2), (2, design.sequences))
    difficulty = difficulty[0] + difficulty[1][document]
    widths = np.diff(bin_edges(design.context, FINE))
    text = rng.normal(0, 2 / np.sqrt(widths), (design.sequences, len(widths)))  # what is hard at a position
    runs = design.runs()
    for run in runs:
        loss = design.truth(run) * math.exp(rng.normal(0, design.seed_noise))
        _write_training(root / "training" / run.name, design, run, loss, rng)
        _write_evaluation(root / "evaluation" / run.name, design, run, loss, (difficulty, text), rng)
    for variant, size in dict.fromkeys((run.variant, run.size) for run in runs):
        if design.edges.get(variant) != "untuned":
            _write_tuning(root / "training" / "tuning", design, variant, size)
    return [run.name for run in runs]


def _write_tuning(folder: Path, design: Design, variant: str, size: str) -> None:
    """A sweep with its optimum in the middle of three learning rates and of three scales."""
    points = {(LEARNING_RATE, 1.0): 0.0, (LEARNING_RATE / 3, 1.0): 0.02, (3 * LEARNING_RATE, 1.0): 0.03}
    points |= {(LEARNING_RATE, 0.3): 0.02, (LEARNING_RATE, 3.0): 0.03}
    trials = [
        {"learning_rate": rate, "embedding_scale": scale, "validation_loss": 5 + effect, "diverged": False}
        for (rate, scale), effect in points.items()
    ]
    found = {"cell": f"{variant}-{size}-x1", "multiple": design.tuning_multiple, "trials": trials}
    found |= {"learning_rate": LEARNING_RATE, "embedding_scale": 1.0}
    found["edges"] = [axis for axis in design.edges.get(variant, "").split("+") if axis]
    write_json(folder / f"{variant}-{size}-x1.json", found)


def _write_training(folder: Path, design: Design, run: Run, loss: float, rng: np.random.Generator) -> None:
    spec, tokens = design.spec(run), design.tokens(run)
    steps, counts = spec.training.steps, count(spec.model)
    spec.write(folder / "spec.json")
    result = {"spec_hash": spec.hash, "identity": spec.hash, "tokens_digest": "feed"}
    result |= {"steps": steps, "tokens": tokens, "epochs": tokens / design.train_tokens, "learning_rate": LEARNING_RATE}
    result |= {"final_loss": loss - 0.05, "validation_loss": loss + 0.01, "diverged": False}
    result |= {name: getattr(counts, name) for name in ("n_exact", "n_kaplan", "n_total")}
    result |= {"flops_per_token": counts.flops_training, "flops_per_token_body": counts.flops_training_body}
    precision = design.precision.get(run.variant, "float32")
    machine = {"device": "cpu", "precision": precision, "processes": 1, "micro_batch": design.batch, "seconds": 12.5}
    machine |= {"tokens_per_second": tokens / 12.5, "mfu": 0.1, "data_wait_share": 0.01, "peak_memory_bytes": 10**9}
    write_json(folder / "result.json", result | {"machine": machine})
    step = np.unique(np.linspace(1, steps, 100).astype(int))
    share = step / steps
    curve = loss + (math.log(design.vocab) - loss) * np.exp(-6 * share) + rng.normal(0, 0.03, len(step))
    history = {
        "step": step,
        "tokens": step * design.batch * design.context,
        "loss": curve,
        "learning_rate": LEARNING_RATE * np.minimum(1, share / 0.04) * (1 + np.cos(np.pi * share)) / 2,
        "grad_norm": 1 + rng.random(len(step)),
        "validation_loss": np.where(np.arange(len(step)) % 10 == 9, curve + 0.01, np.nan),
    }
    pd.DataFrame(history).to_parquet(folder / "history.parquet", index=False)


def _write_evaluation(
    folder: Path, design: Design, run: Run, loss: float, shared: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    difficulty, text = shared
    own = rng.normal(0, design.sequence_noise / 10, (2, design.sequences))
    splits, rows, sequences = {}, [], []
    for split, noise in zip(("validation", "test"), own, strict=True):
        per_sequence = loss + (difficulty + noise)
        splits[split] = _summary(design, per_sequence)
        rows += _per_token(design, run, split, splits[split]["loss"], loss, rng)
        sequences.append(_sequences(design, run, split, per_sequence, loss, text + rng.normal(0, 0.1, text.shape)))
    identity = {"spec_hash": design.spec(run).hash, "tokens_digest": "feed"}
    write_json(folder / "summary.json", identity | {"splits": splits})
    pd.concat(rows).to_parquet(folder / "per_token.parquet", index=False)
    pd.concat(sequences).to_parquet(folder / "sequences.parquet", index=False)


def _summary(design: Design, per_sequence: np.ndarray) -> dict[str, float]:
    n, mean = design.sequences, float(per_sequence.mean())
    se = float(per_sequence.std(ddof=1) / math.sqrt(n))
    found = {"loss": mean, "se_sequences": se, "se_documents": 1.1 * se, "bits_per_byte": mean / math.log(2) / 3.2}
    return found | {
        "tokens": n * design.context,
        "sequences": n,
        "documents": int(design.document_of()[-1]) + 1,
        "unigram_loss": 6.9,
    }


def _by_position(design: Design, run: Run, loss: float) -> np.ndarray:
    shape = np.arange(1, design.context + 1) ** -design.laws[run.variant].context_exponent
    return loss + 2.5 * (shape - shape.mean())


def _per_token(design: Design, run: Run, split: str, mean: float, loss: float, rng: np.random.Generator) -> list:
    n, position = design.context, np.arange(1, design.context + 1)
    noise = design.sequence_noise * 5 / math.sqrt(design.sequences)
    counts = {"window": np.full(n, design.sequences), "document": design.sequences * np.exp(-position / n)}
    frames = []
    for axis, count_n in counts.items():
        values = _by_position(design, run, loss) + mean - loss + rng.normal(0, noise / 3, n)
        frame = {"split": split, "axis": axis, "position": position, "mean": values, "se": noise}
        frames.append(pd.DataFrame(frame | {"count": count_n.astype(int)}))
    return frames


def _sequences(
    design: Design, run: Run, split: str, per_sequence: np.ndarray, loss: float, noise: np.ndarray
) -> pd.DataFrame:
    edges, which = bin_edges(design.context, FINE), bin_of_position(design.context, FINE)
    curve = _by_position(design, run, loss)
    binned = np.array([curve[which == k].mean() for k in range(len(edges) - 1)])
    bins = binned + (per_sequence - loss)[:, None] + noise
    frame = {"split": split, "window": np.arange(design.sequences), "document": design.document_of()}
    return pd.DataFrame(frame | {"loss": per_sequence, "tokens": design.context, "bins": list(bins)})


# Everything after the runs -------------------------------------------------------------------------------------------


def write_table(root: Path, runs: list[str], design: Design) -> Path:
    """Write analysis/runs.csv and sensitivity.csv, with the alternatives of the design; returns the folder."""
    from lmu_scaling.analysis.table import table

    folder = root / "analysis"
    tunings = sorted((root / "training" / "tuning").glob("*.json"))
    table(root, runs, folder / "runs.csv", folder / "sensitivity.csv", folder / "history.parquet", tunings)
    frame = pd.read_csv(folder / "sensitivity.csv")
    rows = [{"multiple": 1.0, "kind": "alternative", "loss": 5 + each["effect"]} | each for each in design.alternatives]
    pd.concat([frame, pd.DataFrame(rows)]).to_csv(folder / "sensitivity.csv", index=False)
    return folder


BOOTSTRAP = {"draws": 200, "confidence": 0.95, "seed": 0}
FIT = BOOTSTRAP | {"reference": "kaplan_comment"}
PER_TOKEN = BOOTSTRAP | {"bins_per_octave": 2}


def write_experiment(root: Path, design: Design = DEFAULT, draws: int = 200) -> Path:
    """Write runs, config.json, tokens/report.csv and all of analysis/; returns `root`."""
    from lmu_scaling.analysis.claims.judge import claims
    from lmu_scaling.analysis.complexity import complexity
    from lmu_scaling.analysis.counts import counts
    from lmu_scaling.analysis.fit import fit
    from lmu_scaling.analysis.per_token import per_token
    from lmu_scaling.sections import Complexity

    runs, folder, few = write_results(root, design), root / "analysis", {"draws": draws}
    csv = {
        name: folder / f"{name}.csv"
        for name in ("runs", "curves", "multipliers", "frontier", "per_token_fits", "counts", "table2", "complexity")
    } | {"slopes": folder / "complexity_slopes.csv"}
    write_table(root, runs, design)
    per_token(root, runs, **PER_TOKEN | few, curves=folder / "per_token.parquet", fits=csv["per_token_fits"])
    outputs = {"fits": folder / "fits.json", **{name: csv[name] for name in ("curves", "multipliers", "frontier")}}
    fit(csv["runs"], root, **FIT | few, **outputs)
    counts(design.models(), csv["counts"], csv["table2"])
    complexity(
        Complexity(lengths=[64, 128, 256], d=16, q=20, repeats=1), csv["complexity"], csv["slopes"], device="cpu"
    )
    for name, text in _largest().items():
        (folder / name).write_text(text)
    read = {name: csv[name] for name in ("multipliers", "per_token_fits", "slopes", "counts", "table2")}
    read |= {
        "table": csv["runs"],
        "sensitivity": folder / "sensitivity.csv",
        "fits": folder / "fits.json",
        "confidence": 0.95,
    }
    claims(**read, **{f"out_{kind}": folder / f"claims.{kind}" for kind in ("json", "csv", "md")})
    write_json(root / "config.json", _config(design))
    _write_filter_report(root / "tokens" / "report.csv")
    _write_overlap(root / "tokens" / "overlap.csv")
    return root


@functools.cache
def _largest() -> dict[str, str]:
    """The counts at the paper's largest model, which depend on no design."""
    from lmu_scaling.analysis.largest import largest

    with tempfile.TemporaryDirectory() as scratch:
        names = ("table2_largest.csv", "implementations.csv")
        largest(*(Path(scratch, name) for name in names))
        return {name: Path(scratch, name).read_text() for name in names}


def _config(design: Design) -> dict:
    models = {"context": design.context, "theta_per_q": 4.0, "softmax_scale": "none", "dropout": 0.0}
    training = {"recipe": "tuned", "batch": design.batch, "steps": design.steps, "seeds": list(design.seeds)}
    corpus = {"source": "state_of_the_union", "split": {"train": 0.96, "validation": 0.03, "test": 0.01}}
    config = {"experiment": "embedded", "corpus": corpus, "tokens": {"vocab": design.vocab}, "training": training}
    return config | {"models": models | {"variants": list(design.variants)}}


def _write_filter_report(path: Path) -> None:
    dropped = {"unreadable": 0, "language": 4, "length": 6, "exact_duplicates": 9}
    report = pd.DataFrame({"step": range(4), "filter": dropped.keys(), "dropped_documents": dropped.values()})
    report["dropped_bytes"] = 45000 * report["dropped_documents"]
    report["kept_documents"] = 240 - report["dropped_documents"].cumsum()
    report["kept_bytes"] = 45000 * report["kept_documents"]
    report["kept_share"] = report["kept_documents"] / 240
    path.parent.mkdir(parents=True, exist_ok=True)
    report.to_csv(path, index=False)


def _write_overlap(path: Path) -> None:
    rows = [("before", "validation", 12, 0.03, 0), ("before", "test", 12, 0.68, 1)]
    rows += [("after", "validation", 12, 0.03, 0), ("after", "test", 11, 0.01, 0)]
    report = pd.DataFrame(rows, columns=["when", "split", "documents", "largest_share", "documents_above"])
    report.assign(bound=0.05).to_csv(path, index=False)
