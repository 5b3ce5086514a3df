"""From the configuration to training runs: which runs an experiment has, and the spec of each."""

from __future__ import annotations

from lmu_scaling.models import ModelSpec, resolve
from lmu_scaling.runtime import canonical_json, sha256_bytes
from lmu_scaling.sections import Config, Size
from lmu_scaling.spec import DataSpec, PlateauSpec, Run, RunSpec, TrainingSpec


def runs(config: Config) -> list[Run]:
    """The runs that are evaluated, in reading order."""
    sizes = [size.name for size in config.models.sizes]
    found = [
        Run(variant, size, 1.0, seed)
        for variant in config.models.variants
        for size in sizes
        for seed in config.training.seeds
    ]
    for budget in config.training.budgets:
        found += [
            Run(variant, size, multiple, seed)
            for variant in budget.variants
            for size in budget.sizes or sizes
            for multiple in budget.multiples
            for seed in budget.seeds or config.training.seeds
        ]
    return list(dict.fromkeys(found))


def sweep(config: Config, variant: str, size: str) -> list[Run]:
    """The sweep runs of one cell; none in the recipe `paper`."""
    tuning = config.training.tuning
    if config.training.recipe == "paper":
        return []
    return [Run(variant, size, tuning.multiple, tuning.seed, rate) for rate in tuning.learning_rates]


def sweeps(config: Config) -> list[Run]:
    cells = dict.fromkeys((run.variant, run.size) for run in runs(config))
    return [run for variant, size in cells for run in sweep(config, variant, size)]


def model_spec(config: Config, variant: str, size_name: str) -> ModelSpec:
    size = next(size for size in config.models.sizes if size.name == size_name)
    own = {key: getattr(size, key) for key in Size.model_fields if key not in ("name", "d")}
    return resolve(
        variant,
        size.d,
        config.models.context,
        config.tokens.vocab,
        theta_per_q=config.models.theta_per_q,
        softmax_scale=config.models.softmax_scale,
        dropout=config.models.dropout,
        **own,
    )


def data_spec(config: Config) -> DataSpec:
    """What decides the token stream. Paths, engines and the number of jobs do not."""
    corpus = config.corpus.model_dump(exclude={"path", "parts"})
    tokens = config.tokens.model_dump(exclude={"engine"})
    settings = canonical_json({"corpus": corpus, "tokens": tokens})
    return DataSpec(config.corpus.source, sha256_bytes(settings.encode())[:16])


def spec_of(config: Config, run: Run) -> RunSpec:
    """The spec of a run; its learning rate is None until the sweep has been judged (recipe `tuned`)."""
    training, optimiser = config.training, config.training.optimiser
    tuned = training.recipe == "tuned"
    rate = run.learning_rate if run.learning_rate is not None else (None if tuned else optimiser.learning_rate)
    steps = max(1, round(training.steps * run.multiple))
    plateau = training.schedule.plateau
    return RunSpec(
        model=model_spec(config, run.variant, run.size),
        data=data_spec(config),
        training=TrainingSpec(
            batch=training.batch,
            steps=steps,
            seed=run.seed,
            learning_rate=rate,
            betas=(optimiser.beta1, optimiser.beta2),
            eps=optimiser.eps,
            weight_decay=optimiser.weight_decay,
            clip=training.tuning.clip if tuned else optimiser.clip,
            warmup=training.schedule.warmup,
            plateau=PlateauSpec(**plateau.model_dump()) if plateau else None,
            validate_every=max(1, steps // training.validations),
            validation_sequences=training.validation_sequences,
        ),
    )
