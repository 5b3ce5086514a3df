"""From the configuration to training runs: which runs an experiment has, and the spec of each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from lmu_scaling.models import ModelSpec, resolve
from lmu_scaling.runtime import canonical_json, sha256_bytes
from lmu_scaling.sections import Alternative, Config, Size, VariantSettings
from lmu_scaling.spec import DataSpec, PlateauSpec, Run, RunSpec, TrainingSpec


class Cell(NamedTuple):
    """What is tuned together: a variant at a size, for a token budget (a multiple of `training.steps`)."""

    variant: str
    size: str
    multiple: float

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.size}-x{self.multiple:g}"


# ------------------------------------------------------------------------------------------------------------- runs
def runs(config: Config) -> list[Run]:
    """The runs that are evaluated, in reading order."""
    sizes = [size.name for size in config.models.sizes]
    seeds = config.training.seeds
    found = [Run(*key) for key in product(config.models.variants, sizes, [1.0], seeds)]
    for budget in config.training.budgets:
        found += [
            Run(variant, size, multiple, seed)
            for variant in budget.variants or config.models.variants
            for size in budget.sizes or sizes
            for multiple in budget.multiples
            for seed in budget.seeds or seeds
        ]
    for other in config.training.alternatives:
        compared = [variant for variant in other.variants if variant in config.models.variants]
        keys = product(compared, other.sizes or sizes, [1.0], other.seeds or seeds)
        found += [Run(*key, other.name) for key in keys]
    return list(dict.fromkeys(found))


def alternative(config: Config, run: Run) -> Alternative | None:
    return next((other for other in config.training.alternatives if other.name == run.setting), None)


def recipe(config: Config, run: Run) -> str:
    other = alternative(config, run)
    return config.training.recipe if other is None or other.recipe is None else other.recipe


# ----------------------------------------------------------------------------------------------------------- tuning
def cell_of(config: Config, run: Run) -> Cell | None:
    """The cell whose sweep gives this run its learning rate and embedding scale, or to whose sweep it belongs.

    None in the recipe `paper`.
    """
    if recipe(config, run) == "paper":
        return None
    tuning = config.training.tuning
    if run.trial is not None:
        return Cell(run.variant, run.size, float(f"{run.multiple / tuning.multiple:.6g}"))
    own = run.multiple >= tuning.retune_ratio or run.multiple <= 1 / tuning.retune_ratio
    lender = tuning.embedding_scale_from if tuning.rate_trials == 0 else None
    return Cell(run.variant, lender or run.size, run.multiple if own else 1.0)


def cells(config: Config) -> list[Cell]:
    """All cells that are tuned; first those that lend their embedding scale."""
    found = dict.fromkeys(cell for run in runs(config) if (cell := cell_of(config, run)))
    lending = dict.fromkeys(lender for cell in found if (lender := scale_lender(config, cell)))
    return list(lending | found)


def scale_lender(config: Config, cell: Cell) -> Cell | None:
    """The cell whose embedding scale this one uses; None if it searches for its own."""
    size = config.training.tuning.embedding_scale_from
    lender = None if size is None else Cell(cell.variant, size, 1.0)
    return None if lender == cell else lender


def sweep(config: Config, cell: Cell) -> list[Run]:
    """The sweep runs of one cell: first the grid, then those that depend on earlier ones."""
    tuning = config.training.tuning
    count = tuning.trials if scale_lender(config, cell) is None else tuning.rate_trials or tuning.trials
    count += tuning.more_trials.get(cell.size, 0)
    multiple = cell.multiple * tuning.multiple
    return [Run(cell.variant, cell.size, multiple, tuning.seed, trial=trial) for trial in range(1, count + 1)]


def sweeps(config: Config) -> list[Run]:
    return [run for cell in cells(config) for run in sweep(config, cell)]


def grid(config: Config, cell: Cell) -> list[tuple[float, float | None]]:
    """Learning rates and embedding scales of the first sweep runs; the scale is None if another cell lends it."""
    tuning = config.training.tuning
    if scale_lender(config, cell) is not None:
        return [(rate, None) for rate in tuning.learning_rates]
    default = model_spec(config, cell.variant, cell.size).embedding_scale
    return list(product(tuning.learning_rates, tuning.embedding_scales or [default]))


def search_steps(config: Config, cell: Cell) -> dict[str, float | None]:
    """Factors between neighbouring sweep runs on each axis; None: the axis is fixed."""
    tuning = config.training.tuning
    fixed = scale_lender(config, cell) is not None
    return {
        "learning_rate_step": tuning.learning_rate_step,
        "embedding_scale_step": None if fixed else tuning.embedding_scale_step,
    }


@dataclass(frozen=True)
class Origin:
    """Where a run's learning rate and embedding scale come from, as far as the configuration does not fix them."""

    tuning: Cell | None = None
    """A judged sweep."""
    fixed: tuple[str, ...] = ()
    """Values that are not taken from it."""
    earlier: tuple[Run, ...] = ()
    """Sweep runs that decide where this sweep run lies."""


def origin(config: Config, run: Run) -> Origin:
    cell = cell_of(config, run)
    if cell is None:
        return Origin()
    if run.trial is None:
        other = alternative(config, run)
        fixed = [key for key in ("learning_rate", "embedding_scale") if getattr(other, key, None) is not None]
        return Origin(cell, tuple(fixed))
    if run.trial > len(grid(config, cell)):
        return Origin(earlier=tuple(sweep(config, cell)[: run.trial - 1]))
    return Origin(scale_lender(config, cell), ("learning_rate",))


# ------------------------------------------------------------------------------------------------------------ specs
def model_spec(config: Config, variant: str, size_name: str, **changes: Any) -> ModelSpec:
    size = next(size for size in config.models.sizes if size.name == size_name)
    own = {key: getattr(size, key) for key in Size.model_fields if key not in ("name", "d")}
    own["theta_per_q"] = config.models.theta_per_q
    if variant in config.models.per_variant:
        own |= config.models.per_variant[variant].model_dump(exclude_none=True)
    return resolve(
        variant,
        size.d,
        config.models.context,
        config.tokens.vocab,
        softmax_scale=config.models.softmax_scale,
        dropout=config.models.dropout,
        **(own | changes),
    )


def data_spec(config: Config) -> DataSpec:
    """What decides the token stream. Paths, engines and the number of jobs do not."""
    corpus = config.corpus.model_dump(exclude={"path", "parts"})
    tokens = config.tokens.model_dump(exclude={"engine"})
    settings = canonical_json({"corpus": corpus, "tokens": tokens})
    return DataSpec(config.corpus.source, sha256_bytes(settings.encode())[:16])


def spec_of(config: Config, run: Run) -> RunSpec:
    """The spec of a run; its learning rate is None, and its embedding scale a default, until its cell was tuned."""
    training, optimiser = config.training, config.training.optimiser
    other = alternative(config, run)
    tuned = recipe(config, run) == "tuned"
    changes = {} if other is None else other.model_dump(include=set(VariantSettings.model_fields), exclude_none=True)
    rate = None if tuned else optimiser.learning_rate
    steps = max(1, round(training.steps * run.multiple))
    plateau = training.schedule.plateau
    # a sweep run is judged by its last loss alone
    validations = 1 if run.trial is not None and plateau is None else training.validations
    spec = RunSpec(
        model=model_spec(config, run.variant, run.size, **changes),
        data=data_spec(config),
        training=TrainingSpec(
            batch=training.batch,
            steps=steps,
            seed=run.seed,
            learning_rate=rate if other is None or other.learning_rate is None else other.learning_rate,
            betas=(optimiser.beta1, optimiser.beta2),
            eps=optimiser.eps,
            weight_decay=optimiser.weight_decay,
            clip=training.tuning.clip if tuned else optimiser.clip,
            warmup=training.schedule.warmup,
            plateau=PlateauSpec(**plateau.model_dump()) if plateau else None,
            validate_every=max(1, steps // validations),
            validation_sequences=training.validation_sequences,
        ),
    )
    cell = cell_of(config, run)
    points = grid(config, cell) if cell is not None and run.trial is not None else []
    return spec.tuned(*points[run.trial - 1]) if run.trial is not None and run.trial <= len(points) else spec
