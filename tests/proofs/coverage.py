"""Prove by simulation how often nominal 95 % intervals contain the truth; writes the table of docs/coverage.md.

    python -m tests.proofs.coverage --out docs/coverage.md    # 200 experiments, about 3 minutes on one core

An experiment has two variants with known laws, seed noise of 0.02 nats, and 300 test sequences of unequal difficulty
that all runs share. It is analysed with the code of `lmu_scaling.analysis`. "plain" resamples seeds within a cell
without any correction, "by sequence" resamples sequences where documents are few, both for comparison.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from lmu_scaling.analysis.bootstrap import block_starts, interval, make_cells
from lmu_scaling.analysis.claims import power_law
from lmu_scaling.analysis.comparisons import compare
from lmu_scaling.analysis.fit import fit_one_power, fit_one_saturating
from lmu_scaling.analysis.joint import fit_one_joint, held_out
from lmu_scaling.analysis.laws import fit_power
from lmu_scaling.analysis.multipliers import first_reach
from lmu_scaling.analysis.per_token import Curve, Spread, resample
from lmu_scaling.evaluation.positions import FINE, bin_edges, bins_within, overlap
from lmu_scaling.runtime import atomic_write
from tests.synthetic import Law

PAPER = {"power_laws": {}}
POWER = {"lmu": Law(A=10.7, a=0.072), "transformer": Law(A=11.4, a=0.077)}
SATURATING = dict.fromkeys(POWER, Law(E=1.7, A=60.0, a=0.3))
JOINT = dict.fromkeys(POWER, Law(E=1.7, A=60.0, a=0.3, B=400.0, b=0.28))
SIXES = (55e3, 98e3, 203e3, 346e3, 498e3, 999e3)
FOURS = (6e3, 14e3, 25e3, 55e3)

HEAD = """# Coverage of the intervals

Share of {experiments} simulated experiments (`python -m tests.proofs.coverage`, {draws} draws each) whose
nominal 95 % interval contains the true value. The standard error of a share is about 1.5 points. The method is
described in [claims.md](claims.md). `plain` resamples seeds within a cell without its corrections: the low coverage
is the reason for them. With one seed, the spread is estimated from the scatter of the sizes about the fitted law.
`by sequence` resamples 300 sequences as if they were independent, though they come from 30 documents. The error of a
held-out prediction is truly zero, as the law is exact. The last rows replicate the paper exactly: how often the rule of
C1 finds that α and the level agree.

| design | quantity | coverage |
|---|---|---|"""


@dataclass(frozen=True)
class Scenario:
    """A design and what is checked on it."""

    name: str
    sizes: tuple[float, ...]
    seeds: int
    laws: dict[str, Law]
    check: str
    multiples: tuple[float, ...] = (1.0,)
    tokens: float = 13.1e9
    noise: float = 0.02
    documents: int = 300


SCENARIOS = (
    Scenario("6 sizes, 3 seeds", SIXES, 3, POWER, "power"),
    Scenario("3 sizes, 2 seeds (the embedded design)", FOURS[:3], 2, POWER, "power"),
    Scenario("6 sizes, 1 seed (the paper's design)", SIXES, 1, POWER, "power"),
    Scenario("6 sizes, 3 seeds, saturating law", SIXES, 3, SATURATING, "saturating"),
    Scenario("4 sizes, 4 budgets, 2 seeds, joint law", FOURS, 2, JOINT, "joint", (0.5, 1, 2, 4), 2e6),
    Scenario("6 sizes, 2 seeds, 30 test documents", SIXES, 2, POWER, "documents", documents=30),
    Scenario("context of 512, 2 seeds, 30 test documents", SIXES, 2, POWER, "context", documents=30),
    Scenario("6 sizes, 3 seeds, beside the paper's 6 sizes and 1 seed", SIXES, 3, POWER, "paper"),
)


def simulate(scenario: Scenario, rng: np.random.Generator, sequences: int = 300):
    """A table of runs, and the summed losses and token counts of the test sequences."""
    difficulty = rng.normal(0, 0.4, scenario.documents)[documents_of(scenario, sequences)]
    if scenario.documents < sequences:
        difficulty = difficulty + rng.normal(0, 0.2, sequences)
    rows, blocks = [], []
    for variant, law in scenario.laws.items():
        for n in scenario.sizes:
            for multiple in scenario.multiples:
                tokens = scenario.tokens * multiple
                for seed in range(scenario.seeds):
                    trained = law.loss(n, tokens) + rng.normal(0, scenario.noise)
                    values = trained + difficulty + rng.normal(0, 0.05, sequences)
                    blocks.append(values * 256)
                    row = {"run": f"{variant}-{n:g}-x{multiple:g}-s{seed}", "variant": variant, "size": f"{n:g}"}
                    row |= {"multiple": multiple, "seed": seed, "n_exact": n, "n_kaplan": n, "tokens": tokens}
                    row |= {"steps": 1, "flops_per_token": 1.0, "flops_per_token_body": 1.0}
                    rows.append(row | {"test_loss": values.mean()})
    losses = np.array(blocks)
    return pd.DataFrame(rows), (losses, np.full(losses.shape, 256.0))


def documents_of(scenario: Scenario, sequences: int = 300) -> np.ndarray:
    """The document of each sequence; the first documents are the longest."""
    share = np.sqrt(np.arange(sequences) / sequences) if scenario.documents < sequences else np.arange(sequences) / 300
    return np.unique((share * scenario.documents).astype(int), return_inverse=True)[1]


def run(scenario: Scenario, draws: int, seed: int) -> dict[str, bool]:
    """Which intervals of one simulated experiment contain the truth."""
    rng = np.random.default_rng([seed, len(scenario.name)])
    if scenario.check == "context":
        return {"gain minus the transformer's gain": _excess(scenario, draws, seed, rng)}
    table, blocks = simulate(scenario, rng)
    cells = make_cells(table, blocks, draws, 0.95, seed)
    found = {}
    law = scenario.laws["lmu"]
    if scenario.check == "power":
        entry = fit_one_power(cells, "lmu", 1.0, PAPER)
        found["α"] = entry["alpha_low"] <= law.a <= entry["alpha_high"]
        level = law.loss(entry["n_mean"], scenario.tokens)
        found["loss at the mean N"] = entry["loss_at_mean_low"] <= level <= entry["loss_at_mean_high"]
        found["difference at the mean N"] = _difference(cells, scenario)
        found["parameter multiplier"] = _multiplier(cells, scenario)
        found["plain: α"] = _plain(table, law.a, draws, rng)
    elif scenario.check == "saturating":
        entry = fit_one_saturating(cells, "lmu", 1.0)
        for name, key in (("E", "E"), ("alpha", "a")):
            found[name] = entry[f"{name}_low"] <= getattr(law, key) <= entry[f"{name}_high"]
    elif scenario.check == "joint":
        entry, _ = fit_one_joint(cells, "lmu")
        for name in ("E", "a", "b"):
            for method, values in (("Huber", entry), ("least squares", entry["least_squares"])):
                found[f"{method}: {name}"] = values[f"{name}_low"] <= getattr(law, name) <= values[f"{name}_high"]
        error = held_out(cells, "lmu")["predictions"][-1]
        found["held-out prediction of the largest size and budget"] = error["low"] <= 0 <= error["high"]
    elif scenario.check == "documents":
        starts = block_starts(documents_of(scenario))
        grouped = tuple(np.add.reduceat(part, starts, axis=1) for part in blocks)
        found["loss at the mean N"] = _level(make_cells(table, grouped, draws, 0.95, seed), scenario)
        found["by sequence: loss at the mean N"] = _level(cells, scenario)
        found["difference at the mean N"] = _difference(make_cells(table, grouped, draws, 0.95, seed), scenario)
    else:
        found |= _beside_the_paper(fit_one_power(cells, "lmu", 1.0, PAPER), scenario, rng)
    return found


def _level(cells, scenario: Scenario) -> bool:
    entry = fit_one_power(cells, "lmu", 1.0, PAPER)
    level = scenario.laws["lmu"].loss(entry["n_mean"], scenario.tokens)
    return entry["loss_at_mean_low"] <= level <= entry["loss_at_mean_high"]


def _beside_the_paper(entry: dict, scenario: Scenario, rng: np.random.Generator) -> dict[str, bool]:
    """The paper's law is fitted to one seed and printed with three digits; the rule of C1 compares ours with it."""
    law, n = scenario.laws["lmu"], np.array(scenario.sizes)
    theirs = fit_power(n, np.log(law.loss(n, scenario.tokens) + rng.normal(0, scenario.noise, len(n)))[None])
    printed = {"n_c": float(f"{np.exp(theirs.log_nc[0]):.2e}"), "alpha": float(theirs.alpha[0])}
    sizes = dict(enumerate(scenario.sizes))
    paper = {"rounding": {"alpha": 0.0005}, "power_laws": {"lmu": printed}, "experiment": {"sizes": sizes}}
    evidence = SimpleNamespace(paper=paper)
    apart, allowed = power_law._alpha(evidence, entry | {"paper_alpha": round(printed["alpha"], 3)})
    off, margin = power_law._level(evidence, "lmu", entry)
    return {"α agrees": abs(apart) <= allowed, "level agrees": abs(off) <= margin}


def _excess(scenario: Scenario, draws: int, seed: int, rng: np.random.Generator, n: int = 512) -> bool:
    """Two variants read the same documents; the text is harder at some positions, seeds differ in level and in tilt."""
    edges, fine = bin_edges(n, 2), bin_edges(n, FINE)
    width, document = np.diff(fine), documents_of(scenario)
    late = bins_within(fine, n // 2, n)
    text = rng.normal(0, 0.3, (scenario.documents, len(width)))[document] + rng.normal(0, 2, (300, 1)) / np.sqrt(width)
    truth = {"lmu": 0.02, "transformer": 0.09}
    curves = []
    for index, gain in enumerate(truth.values()):
        seeds = 4.0 - late * gain + rng.normal(0, 0.02, (6, scenario.seeds, 1)) + late * rng.normal(0, 0.005, (6, 2, 1))
        deviations = (seeds - seeds.mean(axis=1, keepdims=True)) * np.sqrt(2)
        shared = overlap(edges, fine)
        join = (shared / shared.sum(axis=1, keepdims=True)).T
        spread = Spread(deviations.reshape(-1, len(width)) @ join, 6)
        own = seeds[0].mean(axis=0) + text + rng.normal(0, 1, text.shape) / np.sqrt(width)
        shift = resample(own, document, edges, draws, np.random.default_rng(seed))
        shift = shift + spread.draws(2, draws, np.random.default_rng([seed, index]))
        mean = own.mean(axis=0) @ join
        curves.append(Curve(edges, mean, mean + shift, 300 * np.diff(edges)))
    ours, theirs = (curve.plateau() for curve in curves)
    low, high = interval(ours[1] - theirs[1], 0.95)
    return bool(low <= truth["lmu"] - truth["transformer"] <= high)


def _difference(cells, scenario: Scenario) -> bool:
    entry = compare(cells, "lmu", "transformer")
    truth = [scenario.laws[name].loss(entry["n"], scenario.tokens) for name in ("lmu", "transformer")]
    return entry["low"] <= truth[1] - truth[0] <= entry["high"]


def _multiplier(cells, scenario: Scenario) -> bool:
    """The N that the transformer needs for the loss of the second smallest LMU; it lies between measured sizes."""
    index, base = cells.select("lmu")[1], cells.select("transformer")
    log_n = np.log(cells.frame.loc[base, "n"].to_numpy(float))
    low, high = interval(first_reach(log_n, cells.log_loss[:, base], cells.log_loss[:, index]), 0.95)
    law = scenario.laws["transformer"]
    truth = np.log(law.A / scenario.laws["lmu"].loss(cells.frame.loc[index, "n"], scenario.tokens)) / law.a
    return bool(low <= truth <= high)


def _plain(table: pd.DataFrame, truth: float, draws: int, rng: np.random.Generator) -> bool:
    """Resample seeds within each cell, without correction."""
    own = table[table["variant"] == "lmu"]
    values = np.log(own.pivot_table(index="n_exact", columns="seed", values="test_loss").to_numpy())
    picked = rng.integers(0, values.shape[1], (draws, *values.shape))
    resampled = np.take_along_axis(np.broadcast_to(values, picked.shape), picked, axis=2).mean(axis=2)
    low, high = interval(fit_power(np.sort(own["n_exact"].unique()), resampled).alpha, 0.95)
    return bool(low <= truth <= high)


def report(experiments: int, draws: int) -> str:
    lines = [HEAD.format(experiments=experiments, draws=draws)]
    for scenario in SCENARIOS:
        hits: dict[str, list[bool]] = defaultdict(list)
        start = time.perf_counter()
        for seed in range(experiments):
            for name, hit in run(scenario, draws, seed).items():
                hits[name].append(hit)
        for name, values in hits.items():
            lines.append(f"| {scenario.name} | {name} | {100 * np.mean(values):.1f} % |")
        print(
            f"{scenario.name}: {time.perf_counter() - start:.0f} s",
            {k: np.mean(v) for k, v in hits.items()},
            flush=True,
        )
    lines.append(f"\nPython {platform.python_version()}, NumPy {np.__version__}.\n")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    text = report(options.experiments, options.draws)
    print(text)
    if options.out is not None:
        with atomic_write(options.out) as file:
            file.write(text)
