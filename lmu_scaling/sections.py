"""The sections of the configuration: one small pydantic model each, a description on every field."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field, field_validator

from lmu_scaling.corpus.filters import Filter, registered
from lmu_scaling.fields import ByteCount, Count, Decay, Multiple, Positive, Section, Seed, Share, SomeShare, Steps

AFFECTS_RESULTS = False

Positions = Literal["none", "learned", "rotary"]
Rate = Annotated[float, Field(gt=0)]
Factor = Annotated[float, Field(gt=1)]

if TYPE_CHECKING:
    AnyFilter = Filter
else:
    AnyFilter = Annotated[Union[tuple(registered().values())], Field(discriminator="name")]  # noqa: UP007


# ---------------------------------------------------------------------------------------------------------- corpus
class Split(Section):
    """Shares of documents; they sum to 1 (paper, section 5: 96/3/1)."""

    train: SomeShare = Field(description="Share of documents to train on")
    validation: SomeShare = Field(description="Share of documents to choose hyper-parameters on")
    test: SomeShare = Field(description="Share of documents that is reported, once")


class Corpus(Section):
    """Where text comes from and what is kept of it (paper, section 5, Dataset)."""

    source: str = Field(description="A name in lmu_scaling/catalog/datasets.yaml")
    path: str | None = Field(None, description="A file or folder you already have, instead of the download")
    sample: ByteCount | None = Field(
        None, description="Download only this much of an archive, for example 500 MB; null: all of it"
    )
    parts: int = Field(
        1, gt=0, le=99999, description="Number of jobs the corpus is cut into; does not change the result"
    )
    filters: list[AnyFilter] = Field([], description="Applied in this order; each one's effect is reported")
    target_tokens: int | None = Field(None, gt=0, description="Subsample to about this many tokens; null: keep all")
    split: Split = Field(description="Train, validation and test shares, by document")
    on_bad_document: Literal["skip", "stop"] = Field("skip", description="Skip and count unreadable documents, or stop")
    max_bad_share: Share = Field(0.001, description="Stop if more than this share of documents or bytes is unreadable")


class Tokens(Section):
    """GPT-2's byte-level BPE, whole or cut to its first ranks."""

    encoding: Literal["gpt2"] = Field("gpt2", description="The tokenizer")
    vocab: int = Field(50257, ge=257, le=50257, description="Vocabulary incl. the separator; 50257 is GPT-2 itself")
    engine: Literal["tiktoken", "fastokens"] = Field(
        "tiktoken", description="tiktoken is the reference; fastokens is faster and checked against it on samples"
    )


# ---------------------------------------------------------------------------------------------------------- models
class Size(Section):
    """One model size: the width d; everything else follows from it unless it is set here."""

    name: str = Field(max_length=50, pattern=r"^[A-Za-z0-9.]+$", description="Short name used in file names, e.g. 55k")
    d: Positive = Field(description="Embedding dimension; N = 24 d^2 (paper, section 5)")
    q: Positive | None = Field(None, description="LMU order; null: 10*round(1.2255*d/10)")
    q_reduced: Positive | None = Field(None, description="Reduced order q'; null: q/10")
    theta: float | None = Field(None, gt=0, description="LMU window [tokens]; null: theta_per_q * q")
    heads: Positive | None = Field(None, description="Heads of global attention; null: 2 for d <= 92, else 4")
    ffn: Positive | None = Field(None, description="FFN width d'; null: solved so that N = 24 d^2")


class VariantSettings(Section):
    """Settings of one variant that replace its defaults (lmu_scaling/models/variants/)."""

    positions: Positions | None = Field(None, description="How attention knows the order of tokens")
    embedding_scale: Rate | None = Field(None, description="Factor on the input embedding, where it is not tuned")
    residual_gain: Rate | None = Field(None, description="Factor on the initial weights of residual projections")
    theta_per_q: float | None = Field(None, ge=1, description="LMU window as a multiple of q; null: models.theta_per_q")


class Models(Section):
    """Which models are trained (paper, section 4)."""

    context: int = Field(ge=2, le=1_000_000, description="Sequence length n [tokens]; the paper: 1024")
    variants: list[str] = Field(min_length=1, description="Registered model variants")
    sizes: list[Size] = Field(min_length=1, description="Model sizes")
    theta_per_q: float = Field(4.0, gt=0, description="Window theta as a multiple of the order q")
    softmax_scale: Literal["none", "sqrt_d"] = Field("none", description="Scale in implicit attention; printed: none")
    dropout: Share = Field(0.0, description="Dropout probability; the paper is silent")
    per_variant: dict[str, VariantSettings] = Field({}, description="Settings by variant; defaults are the variant's")


# -------------------------------------------------------------------------------------------------------- training
class Budget(Section):
    """Further token budgets: separate cosine runs, never snapshots of a longer one."""

    variants: list[str] | None = Field(None, min_length=1, description="Variants trained at these budgets; null: all")
    multiples: list[Multiple] = Field(min_length=1, description="Multiples of `steps`")
    sizes: list[str] | None = Field(None, min_length=1, description="Names of sizes; null: all")
    seeds: list[Seed] | None = Field(None, min_length=1, description="Seeds; null: all of training.seeds")


class Optimiser(Section):
    """Adam; defaults are Keras's, which the authors used."""

    learning_rate: Rate = Field(1e-3, description="Peak learning rate of the recipe `paper`")
    beta1: Decay = Field(0.9, description="Decay of the first moment")
    beta2: Decay = Field(0.999, description="Decay of the second moment")
    eps: float = Field(1e-7, gt=0, description="Adam's epsilon (Keras: 1e-7)")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay")
    clip: float | None = Field(None, gt=0, description="Gradient norm is clipped to this; null: never (recipe `paper`)")


class Plateau(Section):
    """Reduce on plateau, as a multiplier on the cosine."""

    factor: float = Field(0.5, gt=0, lt=1, description="Multiplier when validation loss stops falling")
    patience: Positive = Field(3, description="Validations without improvement before the multiplier is applied")
    min_delta: float = Field(1e-3, ge=0, description="Smallest fall that counts [nats]")


class Schedule(Section):
    """Linear warm-up, cosine to zero."""

    warmup: Share = Field(0.04, description="Share of steps with linear warm-up")
    plateau: Plateau | None = Field(None, description="Reduce on plateau as well; null: off")


class Tuning(Section):
    """Recipe `tuned`: the same number of sweep runs for every variant, judged on validation.

    The first ones form a grid; each further one extends the grid where its optimum lies on an edge, or refines it.
    """

    learning_rates: list[Rate] = Field([1e-3, 3e-3, 1e-2], min_length=1, description="Peak learning rates of the grid")
    learning_rate_step: Factor = Field(3.0, description="Factor between neighbours when the grid is extended")
    embedding_scales: list[Rate] | None = Field(
        None, min_length=1, description="Embedding scales of the grid; null: the variant's default alone"
    )
    embedding_scale_step: Factor = Field(7.0, description="Factor between neighbours when the grid is extended")
    embedding_scale_from: str | None = Field(
        None, description="Size whose embedding scale all other sizes and budgets use; null: searched for in each"
    )
    trials: Count = Field(9, description="Sweep runs of a variant, size and budget, the grid included")
    rate_trials: int = Field(
        5,
        ge=0,
        le=1000,
        description="The same where the embedding scale comes from another size; 0: the learning rate does, too",
    )
    more_trials: dict[str, Count] = Field(
        {}, description="Further sweep runs at these sizes, for every variant, e.g. where an optimum lies on an edge"
    )
    retune_ratio: Factor = Field(
        5.0, description="Token budgets that differ from the main one by this factor have sweeps of their own"
    )
    multiple: Multiple = Field(0.25, description="Length of a sweep run as a multiple of the run's")
    seed: Seed = Field(0, description="Seed of the sweep runs")
    clip: float | None = Field(1.0, gt=0, description="Gradient norm is clipped to this in recipe `tuned`")


class Alternative(Section):
    """Further runs at the main budget that differ from the main ones in one setting (docs/claims.md, sensitivity)."""

    name: str = Field(
        max_length=30, pattern=r"^[a-z][a-z0-9_]*$", description="Ends the runs' names; `paper`: the paper's recipe"
    )
    variants: list[str] = Field(
        min_length=1, description="Variants trained with it; those that models.variants lacks are left out"
    )
    sizes: list[str] | None = Field(None, min_length=1, description="Names of sizes; null: all")
    seeds: list[Seed] | None = Field(None, min_length=1, description="Seeds; null: all of training.seeds")
    recipe: Literal["paper", "tuned"] | None = Field(None, description="Another recipe")
    positions: Positions | None = Field(None, description="Other positions")
    embedding_scale: Rate | None = Field(None, description="Another embedding scale")
    residual_gain: Rate | None = Field(None, description="Another initial gain of residual projections")
    theta_per_q: float | None = Field(None, ge=1, description="Another LMU window, as a multiple of q")
    learning_rate: Rate | None = Field(None, description="Another peak learning rate")


class Training(Section):
    """How every variant is trained (paper, section 5, Training Details)."""

    recipe: Literal["paper", "tuned"] = Field(
        "tuned",
        description="paper: one learning rate for all; tuned: learning rate and embedding scale are searched for each "
        "variant on validation",
    )
    batch: Count = Field(description="Sequences per optimiser step; the paper: 512")
    steps: Steps = Field(description="Optimiser steps of the main budget; the paper: 25000")
    seeds: list[Seed] = Field(min_length=1, description="One run per seed")
    budgets: list[Budget] = Field([], description="Further token budgets, for the data-efficiency question")
    optimiser: Optimiser = Field(Optimiser(), description="Adam's settings")
    schedule: Schedule = Field(Schedule(), description="Learning-rate schedule")
    tuning: Tuning = Field(Tuning(), description="The sweep of recipe `tuned`")
    alternatives: list[Alternative] = Field([], description="Runs that show what a single setting changes")
    validations: Count = Field(10, description="Number of validations during a run")
    validation_sequences: Count = Field(64, description="Sequences per validation during a run")


# ------------------------------------------------------------------------------------------ evaluation and analysis
class Evaluation(Section):
    """Cross-entropy and per-token loss."""

    max_sequences: int | None = Field(None, gt=0, description="Evaluate at most this many sequences a split; null: all")
    bins_per_octave: int = Field(2, gt=0, le=1000, description="Logarithmic bins of the per-token loss")


class Complexity(Section):
    """Measured time and memory against sequence length (Table 1)."""

    lengths: list[Annotated[int, Field(ge=16)]] = Field(
        [256, 512, 1024, 2048, 4096, 8192], min_length=3, description="Sequence lengths n, each once"
    )
    d: Positive = Field(48, description="Channels of the measured layer")
    q: Positive = Field(60, description="LMU order of the measured layer")
    repeats: int = Field(3, gt=0, le=1000, description="Timings per point; the fastest counts")


class Analysis(Section):
    """Fits, intervals and verdicts."""

    draws: int = Field(2000, ge=100, le=1_000_000, description="Bootstrap draws")
    confidence: float = Field(0.95, gt=0, lt=1, description="Width of every interval")
    seed: Seed = Field(0, description="Seed of the bootstrap")
    reference: Literal["kaplan_comment", "kaplan_self", "literal"] = Field(
        "kaplan_comment", description="Reading of the transformer law that is drawn"
    )
    complexity: Complexity = Field(Complexity(), description="The measurement behind Table 1")


# ------------------------------------------------------------------------------------------------------ paper, plan
MARKER = r"^[.,ov^<>12348spP*hH+xXDd|_]$"


class Look(Section):
    """How a variant looks in every figure."""

    label: str = Field(min_length=1, max_length=60, description="Name in legends and tables; $…$ is set as mathematics")
    colour: str = Field(pattern=r"^#[0-9a-fA-F]{6}$", description="#rrggbb")
    marker: str = Field(pattern=MARKER, description="Matplotlib marker")

    @field_validator("label")
    @classmethod
    def _can_be_drawn(cls, label: str) -> str:
        """As Matplotlib will read it: text on one line, and mathematics between dollars that it can set."""
        if not label.isprintable() or not label.strip():
            raise ValueError("a label needs characters that can be printed, on one line")
        # environments that draw nothing do not have Matplotlib
        if label.replace(r"\$", "").count("$") > 1 and importlib.util.find_spec("matplotlib"):
            parser = importlib.import_module("matplotlib.mathtext").MathTextParser("path")
            try:
                parser.parse(label)
            except ValueError as error:
                raise ValueError(f"Matplotlib cannot set this: {str(error).splitlines()[-1].strip()}") from error
        return label


class Paper(Section):
    """Which figures and tables are made."""

    figures: list[str] = Field(description="Modules in lmu_scaling/paper/figures/")
    tables: list[str] = Field(description="Modules in lmu_scaling/paper/tables/")
    looks: dict[str, Look] = Field({}, description="Label, colour and marker of each variant")


class Accelerator(Section):
    """A device that the plan estimates hours and price for."""

    name: str = Field(description="Name in the plan")
    kind: Literal["cpu", "gpu"] = Field("gpu", description="Training and evaluation on a gpu reserve one each")
    tflops: float = Field(gt=0, description="Peak dense throughput in the training precision [TFLOP/s]")
    utilisation: SomeShare = Field(description="Share of the peak that matrix products are assumed to reach")
    bandwidth_gbs: float | None = Field(
        None, gt=0, description="Memory bandwidth [GB/s]; null: time from FLOPs alone, as on a CPU"
    )
    memory_gb: float = Field(gt=0, description="Device memory [GB]")
    price_per_hour: float = Field(0.0, ge=0, description="Price of one device hour, in your currency")


class Plan(Section):
    """Assumptions of `snakemake plan` and of the resources that jobs reserve."""

    accelerators: list[Accelerator] = Field(
        min_length=1, description="Devices in the plan; jobs reserve resources for the first one"
    )


# Names in results/ that are not experiments.
RESERVED = ("readme.md", "slurm_logs")


class Config(Section):
    """An experiment: all that is computed, nothing about where."""

    experiment: str = Field(
        max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Name of the folder in results/"
    )
    corpus: Corpus = Field(description="Text")
    tokens: Tokens = Field(description="Tokenizer")
    models: Models = Field(description="Architectures and sizes")
    training: Training = Field(description="Optimisation")
    evaluation: Evaluation = Field(Evaluation(), description="Losses")
    analysis: Analysis = Field(Analysis(), description="Fits and verdicts")
    paper: Paper = Field(description="Figures and tables")
    plan: Plan = Field(description="Cost estimates")

    @field_validator("experiment")
    @classmethod
    def _free_name(cls, name: str) -> str:
        if name.lower() in RESERVED or name.endswith((".", ".zip", ".json")):
            raise ValueError("results/ has other files of this name; choose another name")
        return name
