"""What `python -m lmu_scaling` can do: one verb per rule, each a row of a table.

Handlers are named, not imported: a verb pays for its own imports only.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Flag:
    """An argument of a verb; `role` says whether the manifest lists it as something read or written."""

    name: str
    help: str
    role: str = "value"  # "input", "output" or "value"
    many: bool = False
    default: Any = ...  # ...: required
    type: Callable[[str], Any] | None = None
    choices: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        return self.name.lstrip("-").replace("-", "_")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        if self.default is False:
            parser.add_argument(self.name, action="store_true", help=self.help)
            return
        options: dict[str, Any] = {"help": self.help, "choices": self.choices}
        options["type"] = self.type or (str if self.role == "value" else Path)
        if self.many:
            options["nargs"] = "+"
        if self.default is not ...:
            options["default"] = self.default
        elif self.name.startswith("-"):
            options["required"] = True
        parser.add_argument(self.name, **options)


@dataclass(frozen=True)
class Verb:
    """What `python -m lmu_scaling <name>` does; `handler` is `module:function` inside the package."""

    name: str
    stage: str
    help: str
    handler: str
    flags: tuple[Flag, ...]

    @property
    def module(self) -> str:
        return f"lmu_scaling.{self.handler.partition(':')[0]}"

    def load(self) -> Callable[..., Any]:
        return getattr(importlib.import_module(self.module), self.handler.partition(":")[2])


def settings(text: str) -> Any:
    """JSON objects as objects with attributes."""
    return json.loads(text, object_hook=lambda pairs: SimpleNamespace(**pairs))


source = functools.partial(Flag, role="input")
product = functools.partial(Flag, role="output")
SETTINGS = Flag("--settings", "the narrow part of the configuration this job depends on, as JSON", type=settings)
RUNS = Flag("--runs", "names of the runs", many=True)
RESULTS = Flag("--results", "folder results/<experiment>", type=Path)
DEVICE = Flag("--device", "auto, cpu or cuda", default="auto")
THREADS = Flag("--threads", "CPU threads", type=int, default=1)

LOOK = Flag("--look", "names, colours and markers, as JSON", type=settings)
CORPUS = Flag("--settings", "section `corpus` of the configuration, as JSON", type=settings)
TOKENS = Flag("--tokens", "section `tokens` of the configuration, as JSON", type=settings)
PART = Flag("--part", "number of the part, from 0", type=int)
FOLDER = functools.partial(Flag, type=Path)
# A default, not a value in a rule: a repository that moves must not look like another catalogue.
CATALOG = Path(__file__).resolve().parents[1] / "workflow" / "catalog"

VERBS = (
    # ------------------------------------------------------------------------------------------------------- corpus
    Verb("fetch", "corpus", "download the source, or find it on this machine", "corpus.sources:fetch", (
        CORPUS,
        source("--catalog", "where sources are described", default=CATALOG / "datasets.yaml"),
        FOLDER("--data", "folder for downloads"),
        product("--out", "source.json"),
    )),
    Verb("filter", "corpus", "filter and encode one part of the corpus", "corpus.parts:filter_part", (
        CORPUS, TOKENS, PART,
        source("--source", "source.json"),
        FOLDER("--out", "folder for the part's files"),
    )),
    Verb("deduplicate", "corpus", "decide on duplicates and the subsample", "corpus.decide:deduplicate", (
        CORPUS,
        source("--source", "source.json"),
        FOLDER("--parts", "folder with the parts' files"),
        FOLDER("--out", "folder for drops.npy, report.csv and manifest.json"),
    )),
    # ------------------------------------------------------------------------------------------------------- tokens
    Verb("tokenise", "tokens", "write the shards of one part", "tokens.shards:tokenise_part", (
        CORPUS, TOKENS, PART,
        FOLDER("--corpus", "folder with drops.npy and manifest.json"),
        FOLDER("--parts", "folder with the parts' files"),
        FOLDER("--out", "folder for the shards"),
    )),
    Verb("tokens-manifest", "tokens", "merge the parts into one stream", "tokens.manifest:write_manifest", (
        CORPUS, TOKENS,
        FOLDER("--corpus", "folder with the corpus manifest"),
        FOLDER("--folder", "folder with the shards"),
        product("--out", "tokens/manifest.json"),
    )),
    Verb("tokens-inspect", "tokens", "show and verify a folder of shards, decode a window", "tokens.inspect:inspect", (
        FOLDER("folder", "results/<experiment>/tokens"),
        Flag("--split", "train, validation or test", default="train"),
        Flag("--window", "which window to decode", type=int, default=0),
        Flag("--length", "tokens to decode", type=int, default=64),
    )),
    # ----------------------------------------------------------------------------------------------------- training
    Verb("specify", "training", "write a run's spec.json", "training.specify:specify", (
        Flag("--template", "the spec as JSON; its learning rate may be null"),
        source("--tuning", "result of the learning-rate sweep", default=None),
        product("--out", "spec.json"),
    )),
    Verb("tune", "training", "judge a learning-rate sweep", "training.specify:tune", (
        source("--results", "result.json of each sweep run", many=True),
        Flag("--variant", "model variant"),
        Flag("--size", "model size"),
        product("--out", "where the chosen learning rate goes"),
    )),
    Verb("train", "training", "train one run, or resume it", "training.train:train", (
        source("--spec", "spec.json of the run"),
        source("--tokens", "tokens/manifest.json"),
        Flag("--live", "folder for checkpoints and the live log; survives a failed job", type=Path),
        product("--weights", "weights.safetensors"),
        product("--history", "history.parquet"),
        product("--result", "result.json"),
        DEVICE, THREADS,
        Flag("--precision", "auto (bfloat16 products on a GPU), float32 or bfloat16", default="auto",
             choices=("auto", "float32", "bfloat16")),
        Flag("--micro-batch", "sequences per forward pass; 0: whole batch, halved when memory runs out", type=int,
             default=0),
        Flag("--compile", "torch.compile the model", default="auto", choices=("auto", "on", "off")),
        Flag("--checkpoint-seconds", "time between checkpoints", type=float, default=600.0),
        Flag("--no-wait", "leave at once if another process trains this run, instead of waiting", default=False),
        Flag("--keep-going", "record a divergence as a result instead of failing (sweeps)", default=False),
    )),
    Verb("generate", "training", "let a trained model speak", "training.generate:generate", (
        FOLDER("--run", "results/<experiment>/training/<run>"),
        Flag("--prompt", "what it goes on from", default="The state of the Union is"),
        Flag("--length", "tokens to say", type=int, default=200),
        Flag("--temperature", "0: always the likeliest token; 1: as the model thinks", type=float, default=0.8),
        Flag("--seed", "of the draws", type=int, default=0),
        THREADS,
    )),
    # --------------------------------------------------------------------------------------------------- evaluation
    Verb("evaluate", "evaluation", "cross-entropy and per-token loss of one run", "evaluation.evaluate:evaluate", (
        source("--spec", "spec.json of the run"),
        source("--weights", "weights.safetensors"),
        source("--tokens", "tokens/manifest.json"),
        SETTINGS,
        product("--summary", "summary.json"),
        product("--per-token", "per_token.parquet"),
        product("--sequences", "sequences.parquet"),
        DEVICE, THREADS,
    )),
    # ----------------------------------------------------------------------------------------------------- analysis
    Verb("table", "analysis", "the tidy table of all runs", "analysis.table:runs_table", (
        RESULTS, RUNS,
        product("--out", "runs.csv"),
        product("--history", "history.parquet"),
    )),
    Verb("per-token", "analysis", "per-token loss by position, with fits", "analysis.per_token:per_token", (
        RESULTS, RUNS, SETTINGS,
        product("--curves", "per_token.parquet"),
        product("--fits", "per_token_fits.csv"),
    )),
    Verb("fit", "analysis", "power laws, reference curves, multipliers", "analysis.fit:fit", (
        source("--table", "runs.csv"),
        RESULTS,
        source("--paper", "every number the paper prints", default=CATALOG / "paper.yaml"),
        SETTINGS,
        product("--fits", "fits.json"),
        product("--curves", "curves.csv"),
        product("--multipliers", "multipliers.csv"),
    )),
    Verb("counts", "analysis", "parameters and FLOPs, by formula and measured", "analysis.counts:counts", (
        Flag("--specs", "the models, as JSON"),
        product("--out", "counts.csv"),
        product("--table2", "table2.csv"),
    )),
    Verb("complexity", "analysis", "time and memory against sequence length", "analysis.complexity:complexity", (
        SETTINGS,
        product("--out", "complexity.csv"),
        product("--slopes", "complexity_slopes.csv"),
        DEVICE, THREADS,
    )),
    Verb("claims", "analysis", "a verdict on each claim of the paper", "analysis.claims:claims", (
        source("--table", "runs.csv"),
        source("--fits", "fits.json"),
        source("--multipliers", "multipliers.csv"),
        source("--per-token-fits", "per_token_fits.csv"),
        source("--slopes", "complexity_slopes.csv"),
        source("--counts", "counts.csv"),
        source("--table2", "table2.csv"),
        source("--paper", "every number the paper prints", default=CATALOG / "paper.yaml"),
        SETTINGS,
        product("--out-json", "claims.json"),
        product("--out-csv", "claims.csv"),
        product("--out-md", "claims.md"),
    )),
    # -------------------------------------------------------------------------------------------------------- paper
    Verb("figure", "paper", "draw one figure", "paper.render:figure", (
        Flag("--name", "a module in lmu_scaling/paper/figures/"),
        RESULTS, LOOK,
        product("--pdf", "vector figure for print"),
        product("--svg", "vector figure for the web"),
        product("--png", "bitmap"),
        product("--caption", "caption, computed from the data"),
    )),
    Verb("paper-table", "paper", "write one table", "paper.render:table", (
        Flag("--name", "a module in lmu_scaling/paper/tables/"),
        RESULTS, LOOK,
        product("--tex", "LaTeX (booktabs)"),
        product("--csv", "CSV"),
        product("--md", "Markdown"),
    )),
    Verb("report", "paper", "execute the notebook into one page", "paper.report:report", (
        source("--notebook", "the report's notebook", default=CATALOG.parent / "notebooks" / "replication.ipynb"),
        RESULTS,
        FOLDER("--figures", "folder paper_figures"),
        product("--out", "report.html"),
    )),
    Verb("where-to-look", "paper", "say what a finished run left where", "paper.guide:where_to_look", (
        FOLDER("--results", "folder results", default=Path("results")),
        FOLDER("--figures", "folder paper_figures", default=Path("paper_figures")),
    )),
    # -------------------------------------------------------------------------------------------------------- audit
    Verb("config", "audit", "write the effective configuration", "audit.effective:effective", (
        Flag("--config", "the validated configuration, as JSON"),
        product("--out", "config.json"),
    )),
    Verb("plan", "audit", "what an experiment will cost, and what is done already", "audit.plan:plan", (
        Flag("--config", "the validated configuration, as JSON", default=None),
        FOLDER("--configfile", "or a configuration file and its overlays", many=True, default=[Path("config.yaml")]),
        FOLDER("--results", "folder results", default=Path("results")),
        Flag("--rehearse", "measure two steps of every model here, instead of assuming a utilisation", default=False),
        THREADS,
        product("--out-json", "plan.json", default=None),
        product("--out-md", "plan.md", default=None),
    )),
    Verb("audit", "audit", "verify a results folder and recompute a sample", "audit.audit:audit", (
        FOLDER("results", "folder results/<experiment>, here or copied from elsewhere"),
        FOLDER("--figures", "folder paper_figures; default: the one beside results/", default=None),
        product("--out-json", "audit.json", default=None),
        product("--out-md", "audit.md", default=None),
        Flag("--sample", "how many evaluations to recompute from weights", type=int, default=1),
    )),
    Verb("bundle", "audit", "pack results to publish them, as an RO-Crate", "audit.bundle:bundle", (
        FOLDER("results", "folder results/<experiment>"),
        FOLDER("--figures", "folder paper_figures; default: the one beside results/", default=None),
        product("--out", "the zip file"),
        Flag("--without-weights", "leave the weights out", default=False),
        Flag("--with-tokens", "pack the token shards, if you may publish the texts", default=False),
    )),
    Verb("schema", "audit", "export the configuration's JSON schema", "audit.schema:schema", (
        FOLDER("--out", "where to", default=None),
        Flag("--check", "only say whether the exported file is in step", default=False),
    )),
)  # fmt: skip


def verb(name: str) -> Verb:
    return next(entry for entry in VERBS if entry.name == name)
