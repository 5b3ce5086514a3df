"""A small made-up experiment in the shape of docs/contracts.md, for drawing: the numbers follow simple laws."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from lmu_scaling.counting import count
from lmu_scaling.models import resolve
from tests.unit.paper_extras import LAWS, Extras

VARIANTS = ("lmu", "lmu_attention", "transformer", "lstm")
SETTINGS = SimpleNamespace(experiment="embedded", corpus="state_of_the_union", tokens=3.3e6, looks={})
SMALL = {"widths": (16, 20, 24, 32, 40, 48), "context": 256, "vocab": 4096, "batch": 16, "steps": 800}
PAPER = {"widths": (48, 64, 92, 120, 144, 204), "context": 1024, "vocab": 50257, "batch": 512, "steps": 25000}


def write(
    results: Path,
    *,
    variants=VARIANTS,
    widths=(16, 24, 32, 48),
    seeds=(0, 1, 2),
    context=256,
    vocab=4096,
    batch=16,
    steps=800,
    multiples=(2.0, 5.0),
) -> Path:
    """All tables of `analysis/`, the filter report and the configuration."""
    maker = _Maker(variants, widths, seeds, context, vocab, batch, steps, multiples)
    folder = results / "analysis"
    folder.mkdir(parents=True, exist_ok=True)
    runs = maker.runs()
    runs.to_csv(folder / "runs.csv", index=False)
    maker.history(runs).to_parquet(folder / "history.parquet", index=False)
    maker.per_token().to_parquet(folder / "per_token.parquet", index=False)
    maker.per_token_fits().to_csv(folder / "per_token_fits.csv", index=False)
    maker.curves().to_csv(folder / "curves.csv", index=False)
    maker.multipliers().to_csv(folder / "multipliers.csv", index=False)
    maker.counts().to_csv(folder / "counts.csv", index=False)
    maker.table2().to_csv(folder / "table2.csv", index=False)
    maker.complexity().to_csv(folder / "complexity.csv", index=False)
    maker.slopes().to_csv(folder / "complexity_slopes.csv", index=False)
    (folder / "fits.json").write_text(json.dumps(maker.fits()))
    (folder / "claims.json").write_text(json.dumps(maker.claims()))
    (results / "config.json").write_text(json.dumps(maker.config()))
    (results / "corpus").mkdir(exist_ok=True)
    maker.filters().to_csv(results / "corpus" / "report.csv", index=False)
    return results


class _Maker(Extras):
    def __init__(self, variants, widths, seeds, context, vocab, batch, steps, multiples):
        self.variants, self.widths, self.seeds = variants, widths, seeds
        self.context, self.vocab, self.batch, self.steps = context, vocab, batch, steps
        self.multiples = multiples
        self.rng = np.random.default_rng(0)
        self.specs = {(v, d): resolve(v, d, context, vocab) for v in variants for d in widths}
        self.n = {key: count(spec).n_exact for key, spec in self.specs.items()}

    def size(self, d):
        return f"{24 * d * d / 1000:.0f}k" if d < 200 else "1M"

    def loss(self, variant, n, multiple=1.0):
        scale, alpha = LAWS.get(variant, LAWS["lstm"])
        return (scale / n) ** alpha * (0.85 if self.vocab < 50257 else 1) - 0.06 * math.log(multiple)

    def cells(self):
        for variant in self.variants:
            for d in self.widths:
                for multiple in (1.0, *(self.multiples if variant == "transformer" else ())):
                    yield variant, d, multiple

    def runs(self):
        rows = []
        for variant, d, multiple in self.cells():
            counts = count(self.specs[variant, d])
            for seed in self.seeds:
                loss = self.loss(variant, counts.n_exact, multiple) + 0.012 * self.rng.standard_normal()
                tokens = round(self.steps * multiple) * self.batch * self.context
                rows.append(
                    {
                        "run": f"{variant}-{self.size(d)}-x{multiple:g}-s{seed}",
                        "variant": variant,
                        "size": self.size(d),
                        "multiple": multiple,
                        "seed": seed,
                        "d": d,
                        "n_exact": counts.n_exact,
                        "n_kaplan": counts.n_kaplan,
                        "n_total": counts.n_total,
                        "context": self.context,
                        "vocab": self.vocab,
                        "batch": self.batch,
                        "steps": round(self.steps * multiple),
                        "tokens": tokens,
                        "epochs": tokens / 2.1e6,
                        "learning_rate": 3e-3,
                        "validation_loss": loss - 0.01,
                        "test_loss": loss,
                        "test_se": 0.008,
                        "bits_per_byte": loss / 2.4,
                        "flops_per_token": counts.flops_training,
                        "flops": counts.flops_training * tokens,
                        "seconds": 60.0,
                        "spec_hash": "0123456789abcdef",
                    }
                )
        return pd.DataFrame(rows)

    def history(self, runs):
        frames = []
        for row in runs.itertuples():
            step = np.unique(np.geomspace(1, row.steps, 60).round())
            loss = row.test_loss + 3.2 * np.exp(-step / row.steps * 12) + 0.03 * self.rng.standard_normal(len(step))
            validation = np.where(np.arange(len(step)) % 8 == 7, loss + 0.01, np.nan)
            frames.append(
                pd.DataFrame(
                    {
                        "run": row.run,
                        "variant": row.variant,
                        "size": row.size,
                        "multiple": row.multiple,
                        "seed": row.seed,
                        "step": step,
                        "tokens": step * self.batch * self.context,
                        "loss": loss,
                        "learning_rate": 3e-3,
                        "grad_norm": 1.0,
                        "validation_loss": validation,
                    }
                )
            )
        return pd.concat(frames)

    def per_token(self):
        edges = np.unique(np.round(np.geomspace(1, self.context + 1, 18))).astype(int)
        rows = []
        for variant, d, multiple in self.cells():
            floor = self.loss(variant, self.n[variant, d], multiple) - 0.1
            for axis in ("window", "document"):
                for first, after in itertools.pairwise(edges):
                    centre = math.sqrt(first * (after - 1))
                    reach = min(centre, 100) if variant == "lmu" else centre
                    mean = floor + 3 * reach**-0.6
                    rows.append(
                        {
                            "variant": variant,
                            "size": self.size(d),
                            "multiple": multiple,
                            "split": "test",
                            "axis": axis,
                            "position": centre,
                            "first": first,
                            "last": after - 1,
                            "mean": mean,
                            "low": mean - 0.04,
                            "high": mean + 0.04,
                            "count": 500,
                        }
                    )
        return pd.DataFrame(rows)

    def per_token_fits(self):
        half = self.context // 2
        return pd.DataFrame(
            [
                {
                    "variant": v,
                    "size": self.size(d),
                    "multiple": m,
                    "axis": axis,
                    "E": 4.0,
                    "A": 3.0,
                    "a": 0.6,
                    "plateau": 0.05,
                    "plateau_low": 0.01,
                    "plateau_high": 0.09,
                    "early": f"{half // 8}–{half // 4}",
                    "late": f"{half}–{self.context}",
                }
                for v, d, m in self.cells()
                for axis in ("window", "document")
            ]
        )

    def span(self, variant):
        return np.geomspace(self.n[variant, self.widths[0]], self.n[variant, self.widths[-1]], 30)

    def curves(self):
        rows = []
        if len(self.widths) > 1:
            for variant, multiple in dict.fromkeys((v, m) for v, _, m in self.cells()):
                for n in self.span(variant):
                    loss = self.loss(variant, n, multiple)
                    rows.append(
                        {
                            "kind": "fit",
                            "name": variant,
                            "multiple": multiple,
                            "n": n,
                            "loss": loss,
                            "low": loss - 0.02,
                            "high": loss + 0.02,
                        }
                    )
        low = 24 * self.widths[0] ** 2
        for n in np.geomspace(low, max(24 * self.widths[-1] ** 2, 1.5 * low), 30):
            for name, key in (("paper_lmu", "lmu"), ("paper_lmu_attention", "lmu_attention"), ("paper_lstm", "lstm")):
                scale, alpha = LAWS[key]
                rows.append(
                    {
                        "kind": "reference",
                        "name": name,
                        "multiple": 10.0 if key == "lstm" else 1.0,
                        "n": n,
                        "loss": (scale / n) ** alpha,
                    }
                )
            for multiple, shift in ((1.0, 0.18), (10.0, 0.03)):
                rows.append(
                    {
                        "kind": "reference",
                        "name": "kaplan",
                        "multiple": multiple,
                        "n": n,
                        "loss": (6.5e13 / n) ** 0.077 + shift,
                    }
                )
        return pd.DataFrame(rows, columns=["kind", "name", "multiple", "n", "loss", "low", "high"])

    def multipliers(self):
        rows = [
            self.multiplier(variant, "transformer", self.size(d), self.n[variant, d], i, variant == "lmu_attention")
            for variant in ("lmu", "lmu_attention")
            for i, d in enumerate(self.widths)
            if {variant, "transformer"} <= set(self.variants)
        ]
        for variant in ("paper_lmu", "paper_lmu_attention"):
            for i, n in enumerate((55_000, 200_000, 1_000_000)):
                rows.append(self.multiplier(variant, "kaplan", "", n, 0, True) | {"low": (math.inf, 110.0, 13.0)[i]})
        return pd.DataFrame(rows)

    def multiplier(self, variant, against, size, n, rank, endless):
        endless, beyond = endless and rank < 2, endless and rank == 2
        value = math.inf if endless else 5.0 if beyond else 1.8 + 0.4 * rank
        return {
            "quantity": "tokens",
            "variant": variant,
            "against": against,
            "size": size,
            "n": n,
            "loss": 4.4,
            "value": value,
            "low": 5.0 if endless else value * 0.7,
            "high": math.inf if endless or beyond or rank == 0 else value * 1.6,
            "infinite_share": 0.9 if endless else math.nan,
            "beyond": beyond,
            "below": False,
        }
