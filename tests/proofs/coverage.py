"""Prove by simulation how often nominal 95 % intervals contain the truth; writes the table of docs/coverage.md.

    python -m tests.proofs.coverage --out docs/coverage.md    # 200 experiments, about 3 minutes on one core

An experiment has two variants with known laws, seed noise of 0.02 nats, and 300 test sequences of unequal difficulty
that all runs share. It is analysed with the code of `lmu_scaling.analysis.fit`. "plain" resamples seeds within a cell
without any correction, for comparison.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lmu_scaling.analysis.bootstrap import interval, make_cells
from lmu_scaling.analysis.comparisons import compare
from lmu_scaling.analysis.fit import fit_one_power, fit_one_saturating
from lmu_scaling.analysis.joint import fit_one_joint
from lmu_scaling.analysis.laws import fit_power
from lmu_scaling.analysis.multipliers import first_reach
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


SCENARIOS = (
    Scenario("6 sizes, 3 seeds", SIXES, 3, POWER, "power"),
    Scenario("3 sizes, 2 seeds (the embedded design)", FOURS[:3], 2, POWER, "power"),
    Scenario("6 sizes, 1 seed (the paper's design)", SIXES, 1, POWER, "power"),
    Scenario("6 sizes, 3 seeds, saturating law", SIXES, 3, SATURATING, "saturating"),
    Scenario("4 sizes, 4 budgets, 2 seeds, joint law", FOURS, 2, JOINT, "joint", (0.5, 1, 2, 4), 2e6),
)


def simulate(scenario: Scenario, rng: np.random.Generator, sequences: int = 300):
    """A table of runs, and the summed losses and token counts of the test sequences."""
    difficulty = rng.normal(0, 0.4, sequences)
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


def run(scenario: Scenario, draws: int, seed: int) -> dict[str, bool]:
    """Which intervals of one simulated experiment contain the truth."""
    rng = np.random.default_rng([seed, len(scenario.name)])
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
    else:
        entry, _ = fit_one_joint(cells, "lmu")
        for name in ("E", "a", "b"):
            found[name] = entry[f"{name}_low"] <= getattr(law, name) <= entry[f"{name}_high"]
    return found


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
