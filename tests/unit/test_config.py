"""The configuration: what is shipped validates, and every mistake is reported at once, readably."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.config import load, validate
from lmu_scaling.errors import ConfigError
from lmu_scaling.experiment import cell_of, runs, spec_of, sweeps
from lmu_scaling.models import architecture
from lmu_scaling.planning.config_export import schema
from lmu_scaling.runtime import canonical_json
from lmu_scaling.sections import Config, Section
from lmu_scaling.spec import Run, parse_run

ROOT = Path(__file__).resolve().parents[2]
PRESETS = sorted((ROOT / "workflow" / "presets").glob("*.yaml"))


def raw() -> dict:
    return yaml.safe_load((ROOT / "config.yaml").read_text("utf-8"))


@pytest.mark.parametrize("preset", [None, *PRESETS], ids=lambda p: p.stem if p else "default")
def test_every_shipped_configuration_validates(preset: Path | None) -> None:
    config = load(ROOT / "config.yaml", *([preset] if preset else []))
    assert config.experiment == (preset.stem if preset else "sotu")
    assert validate(config.model_dump(mode="json")) == config, "written out with its defaults it validates, too"


@pytest.mark.parametrize("config", sorted((ROOT / "studies").glob("*/config.json")), ids=lambda p: p.parent.name)
def test_a_published_study_can_be_repeated_from_its_configuration(config: Path) -> None:
    """Its run specs are those in the bundle."""
    again = load(ROOT / "config.yaml", config)
    [bundle] = config.parent.glob("*.crate.zip")
    with zipfile.ZipFile(bundle) as archive:
        for run in runs(again):
            [name] = [name for name in archive.namelist() if name.endswith(f"/training/{run.name}/spec.json")]
            published, now = json.loads(archive.read(name)), json.loads(canonical_json(spec_of(again, run).asdict()))
            now["training"]["learning_rate"] = published["training"]["learning_rate"]  # both come from the search
            now["model"]["embedding_scale"] = published["model"]["embedding_scale"]
            assert now == published


@pytest.mark.parametrize("preset", ["paper", "single_gpu"])
def test_settings_of_the_default_experiment_do_not_reach_the_models_of_a_preset(preset: str) -> None:
    config = load(ROOT / "config.yaml", ROOT / "workflow" / "presets" / f"{preset}.yaml")
    assert spec_of(config, runs(config)[0]).model.embedding_scale == architecture("lmu").embedding_scale


def test_some_sizes_may_have_more_sweep_runs() -> None:
    config = raw()
    config["training"]["tuning"] |= {"rate_trials": 2, "more_trials": {"6k": 3}}
    found = [run for run in sweeps(validate(config)) if run.variant == "lmu"]
    assert [sum(run.size == size for run in found) for size in ("6k", "14k")] == [5, 2]
    config["training"]["tuning"]["more_trials"] = {"7k": 1}
    with pytest.raises(ConfigError, match="more_trials: no size is called '7k'"):
        validate(config)


def test_alternatives_of_variants_that_are_not_trained_are_left_out() -> None:
    config = raw()
    config["models"]["variants"] = ["lmu", "transformer"]
    assert {run.variant for run in runs(validate(config))} == {"lmu", "transformer"}


def test_an_alternative_may_have_another_window() -> None:
    config = raw()
    config["training"]["alternatives"] = [{"name": "wide", "variants": ["lmu"], "sizes": ["6k"], "theta_per_q": 8}]
    experiment = validate(config)
    specs = {
        run.setting: spec_of(experiment, run) for run in runs(experiment) if (run.variant, run.size) == ("lmu", "6k")
    }
    main, wide = specs["main"].model, specs["wide"].model
    assert wide == dataclasses.replace(main, theta=2 * main.theta)
    config["training"]["alternatives"][0]["variants"] = ["lstm"]
    with pytest.raises(ConfigError, match="theta_per_q: lstm has no LMU"):
        validate(config)


def test_a_variant_may_have_a_window_of_its_own() -> None:
    config = raw()
    config["models"]["per_variant"] = {
        "lmu": {"theta_per_q": 2, "positions": None},
        "lmu_attention": {"theta_per_q": None},
    }
    experiment = validate(config)
    theta = {run.variant: spec_of(experiment, run).model.theta for run in runs(experiment) if run.size == "6k"}
    assert 2 * theta["lmu"] == theta["lmu_attention"]


def test_one_size_can_lend_its_learning_rate_to_all() -> None:
    config = raw()
    config["training"]["tuning"] |= {"rate_trials": 0, "embedding_scale_from": "14k"}
    lent = validate(config)
    assert {run.size for run in sweeps(lent)} == {"14k"}
    assert {cell_of(lent, run).size for run in runs(lent)} == {"14k"}
    config["training"]["tuning"]["embedding_scale_from"] = None
    with pytest.raises(ConfigError, match="rate_trials: 0 needs embedding_scale_from"):
        validate(config)


def test_a_sweep_run_is_validated_once_at_its_end() -> None:
    config = validate(raw())
    for run in sweeps(config):
        training = spec_of(config, run).training
        assert training.validate_every == training.steps


def test_the_paper_preset_is_the_paper() -> None:
    config = load(ROOT / "config.yaml", ROOT / "workflow" / "presets" / "paper.yaml")
    assert (config.tokens.vocab, config.models.context) == (50257, 1024)
    assert (config.training.batch, config.training.steps) == (512, 25000)
    assert (
        config.training.batch * config.training.steps * config.models.context == 13_107_200_000
    )  # section 5: 13 billion
    assert [size.d for size in config.models.sizes] == [48, 64, 92, 120, 144, 204]  # SCIENCE: 55k to 1M
    split = config.corpus.split
    assert (split.train, split.validation, split.test) == (0.96, 0.03, 0.01)
    assert config.training.optimiser.learning_rate == 1e-3 and config.training.optimiser.eps == 1e-7


def test_five_different_mistakes_are_all_reported_at_once() -> None:
    broken = raw()
    broken["training"]["bacth"] = 4  # unknown key
    broken["training"]["steps"] = "many"  # wrong type
    broken["models"]["sizes"][0].update(q=40, theta=20)  # q > theta
    broken["corpus"]["split"] = {"train": 0.9, "validation": 0.05, "test": 0.04}  # does not sum to 1
    broken["models"]["variants"] = ["lmu", "transfomer"]  # unknown variant
    with pytest.raises(ConfigError) as caught:
        validate(broken)
    message = str(caught.value)
    assert "5 problems" in message
    assert "training.bacth: unknown key (did you mean 'batch'?)" in message
    assert "training.steps: input should be a valid integer" in message and "'many'" in message
    assert "models.sizes.0 (6k)" in message and "theta" in message
    assert "corpus.split: the shares sum to 0.99" in message
    assert "models.variants: unknown variant 'transfomer' (did you mean 'transformer'?)" in message


def look(**changes: str) -> dict[str, str]:
    return {"label": "LMU", "colour": "#0b84c6", "marker": "o"} | changes


@pytest.mark.parametrize("label", ["LMU", "5 $ and less", r"$\theta = 4\,q$", r"100 % \$", "LMU ä"])
def test_labels_that_matplotlib_can_draw_are_accepted(label: str) -> None:
    fine = raw()
    fine["paper"]["looks"] = {"lmu": look(label=label)}
    assert validate(fine).paper.looks["lmu"].label == label


def refused(path: tuple, value: object) -> ConfigError:
    broken = copy.deepcopy(raw())
    section: Any = broken
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    with pytest.raises(ConfigError) as caught:
        validate(broken)
    return caught.value


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("corpus", "source"), "sotuu", "unknown source 'sotuu' (did you mean 'sotu'?)"),
        (("corpus", "filters"), [{"name": "lenght"}], "unknown filter 'lenght' (did you mean 'length'?)"),
        (("corpus", "filters"), [{"name": "length", "min_chars": 3}], "corpus.filters.0.min_chars: unknown key"),
        (("experiment",), "../elsewhere", "experiment: string should match pattern"),
        (("experiment",), "a b; rm", "experiment: string should match pattern"),
        (("models", "sizes"), [{"name": "$(rm)", "d": 16}], "string should match pattern"),
        (("training", "budgets"), [{"variants": ["lmu"], "multiples": [2], "sizes": ["7k"]}], "no size is called '7k'"),
        (("tokens", "vocab"), 65536, "less than or equal to 50257"),
        (("models", "sizes"), [{"name": "a", "d": 16}, {"name": "a", "d": 24}], "'a' is used more than once"),
        (("models", "theta_per_q"), math.inf, "models.theta_per_q: input should be a finite number"),
        (("training", "tuning", "multiple"), math.inf, "training.tuning.multiple: input should be a finite number"),
        (("training", "optimiser", "beta2"), 1.0, "training.optimiser.beta2: input should be less than 1"),
        (("training", "budgets"), [{"variants": ["lmu"], "multiples": [2], "seeds": [-1]}], "budgets.0.seeds.0"),
        (("training", "seeds"), [2**64], "training.seeds.0: input should be less than"),
        (("analysis", "complexity", "lengths"), [64, 64, 64, 128], "lengths: 64 is listed more than once"),
        (("analysis", "confidence"), 0.9999, "intervals of 0.9999 need at least 20,000 draws (got 2,000)"),
        (("models", "variants"), 5, "models.variants: input should be a valid list"),
        (("plan", "accelerators", 0, "utilisation"), 0.0, "utilisation: input should be greater than 0"),
        (("training", "steps"), 10**12, "training.steps: input should be less than or equal to 100000000"),
        (("training", "batch"), 10**12, "training.batch: input should be less than or equal to 1000000"),
        (("models", "context"), 10**9, "models.context: input should be less than or equal to 1000000"),
        (("training", "tuning", "multiple"), 1e9, "training.tuning.multiple: input should be less than or equal to"),
        (("analysis", "draws"), 10**12, "analysis.draws: input should be less than or equal to 1000000"),
        (("analysis", "complexity", "repeats"), 10**9, "repeats: input should be less than or equal to 1000"),
        (("training", "seeds"), [True], "training.seeds.0: true and false are not values of this key"),
        (("training", "steps"), True, "training.steps: true and false are not values of this key"),
        (("experiment",), "README.md", "experiment: results/ has other files of this name"),
        (("experiment",), "slurm_logs", "experiment: results/ has other files of this name"),
        (("experiment",), "x.crate.zip", "experiment: results/ has other files of this name"),
        (("paper", "looks"), {"lmu": look(label="$x^$")}, "looks.lmu.label: matplotlib cannot set this"),
        (("paper", "looks"), {"lmu": look(label="a\nb")}, "looks.lmu.label: a label needs characters"),
        (("paper", "looks"), {"lmu": look(label=" ")}, "looks.lmu.label: a label needs characters"),
        (("paper", "looks"), {"lmu": look(marker="ö")}, "looks.lmu.marker: string should match pattern"),
    ],
)
def test_a_mistake_is_explained_with_its_path(path: tuple[str | int, ...], value: object, expected: str) -> None:
    assert expected in str(refused(path, value))


def test_a_variant_of_a_budget_alone_must_be_buildable_too() -> None:
    broken = copy.deepcopy(raw())
    broken["models"] |= {"variants": ["lmu"], "sizes": [{"name": "odd", "d": 15}]}
    broken["training"]["budgets"] = [{"variants": ["transformer"], "multiples": [2]}]
    with pytest.raises(ConfigError, match="d = 15 is not divisible by heads = 2"):
        validate(broken)


@pytest.mark.parametrize("number", [1e-6, 3e-5, 0.35, 1.0, 12.5, 1e6])
def test_a_run_of_any_length_has_a_name_that_can_be_read(number: float) -> None:
    runs = (
        Run("lmu_attention", "1.5M", number, 7),
        Run("lmu", "6k", number, 3, "rotary"),
        Run("a", "b", number, 0, trial=4),
    )
    for run in runs:
        assert parse_run(run.name) == run


def test_a_missing_section_is_named() -> None:
    broken = raw()
    del broken["models"]
    with pytest.raises(ConfigError, match="models: missing"):
        validate(broken)


def test_the_exported_schema_is_in_step() -> None:
    schema(check=True)


def test_every_field_has_a_description() -> None:
    def sections(model: type[Section]) -> set[type[Section]]:
        return {model, *(leaf for child in model.__subclasses__() for leaf in sections(child))}

    for section in sections(Section) - {Section}:
        assert section.__doc__, section.__name__
        for name, field in section.model_fields.items():
            assert field.description or name == "name", f"{section.__name__}.{name} has no description"


def test_config_yaml_mentions_every_key_of_its_sections() -> None:
    """The default configuration doubles as documentation, so no section may hide keys."""
    given = raw()
    for name, field in Config.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            assert set(section.model_fields) == set(given[name]), name


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The path of everything in a configuration."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 10**7) | st.floats() | st.text(max_size=8) | st.sampled_from(["lmu"])
)
KEYS = st.text(max_size=8) | st.integers() | st.none() | st.sampled_from(["name", "sizes", "d"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(list(places(raw()))), value=VALUES)
def test_whatever_stands_at_a_place_is_explained_or_can_be_handed_to_a_rule(path: tuple, value: object) -> None:
    changed = copy.deepcopy(raw())
    section: Any = changed
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    try:
        config = validate(changed)
    except ConfigError:
        return
    canonical_json(config.model_dump())
    assert all(parse_run(run.name).name == run.name for run in [*runs(config), *sweeps(config)])


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("models", "variants"), 5, "models.variants: input should be a valid list"),
        (("models", "theta_per_q"), float("inf"), "models.theta_per_q: input should be a finite number"),
        (("training", "optimiser", "eps"), float("inf"), "training.optimiser.eps: input should be a finite number"),
        (("training", "budgets", 0, "sizes"), 5, "training.budgets.0.sizes: input should be a valid list"),
        (("paper", "looks", None), {"lable": "x"}, "paper.looks.None.[key]: input should be a valid string"),
        (("paper", "looks", 1), {"lable": "x"}, "paper.looks.1.[key]: input should be a valid string"),
    ],
)
def test_a_value_of_another_kind_is_explained(path: tuple, value: object, problem: str) -> None:
    assert problem in str(refused(path, value))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("training", "seeds"), [1, 2, 1], "training.seeds: 1 is listed more than once"),
        (("training", "seeds"), [2**63], "training.seeds.0: input should be less than"),
        (("models", "variants"), ["lmu", "lmu"], "models.variants: lmu is listed more than once"),
        (("training", "tuning", "learning_rates"), [0.001, 0.00100000001], "0.001 is listed more than once"),
        (
            ("training", "budgets", 0, "multiples"),
            [2, 2.0],
            "training.budgets.0.multiples: 2 is listed more than once",
        ),
        (("training", "budgets", 0, "seeds"), [-1], "training.budgets.0.seeds.0: input should be greater than"),
        (("training", "budgets", 0, "seeds"), [], "training.budgets.0.seeds: list should have at least 1 item"),
        (("training", "budgets", 0, "sizes"), [], "training.budgets.0.sizes: list should have at least 1 item"),
        (("corpus", "parts"), 100_000, "corpus.parts: input should be less than"),
        (("experiment",), "x" * 101, "experiment: string should have at most 100 characters"),
        (("models", "sizes", 0, "name"), "x" * 51, "models.sizes.0.name: string should have at most 50 characters"),
    ],
)
def test_every_run_has_a_name_of_its_own_that_can_be_a_file(path: tuple, value: object, problem: str) -> None:
    assert problem in str(refused(path, value))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            ("corpus", "split"),
            {"train": 0.5, "validation": 0.5, "test": 0},
            "corpus.split.test: input should be greater",
        ),
        (("training", "optimiser", "beta2"), 1, "training.optimiser.beta2: input should be less than 1"),
        (("plan", "accelerators", 0, "utilisation"), 0, "plan.accelerators.0.utilisation: input should be greater"),
    ],
)
def test_a_number_that_nothing_can_be_computed_with_is_refused(path: tuple, value: object, problem: str) -> None:
    assert problem in str(refused(path, value))


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("path", "my.txt", "corpus.path: source 'sotu' is an installed package and reads no path"),
        ("source", "local", "corpus.path: missing"),
        ("filters", [{"name": "length"}, {"name": "length"}], "filter length occurs twice"),
        ("filters", [{"name": "exact_duplicates"}, {"name": "length"}], "length comes after exact_duplicates"),
        (
            "filters",
            [{"name": "length", "min_characters": 9, "max_characters": 8}],
            "at least 9 and at most 8 characters",
        ),
    ],
)
def test_a_contradiction_about_the_corpus_is_found_before_the_download(key: str, value: object, problem: str) -> None:
    assert problem in str(refused(("corpus", key), value))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"training: {batch: 2}\ntraining: {steps: 3}\n", "duplicate key 'training'"),
        (b"training: {batch: 2, steps: 3, batch: 4}\n", "duplicate key 'batch'"),
        (b"caf\xe9: 1\n", "not UTF-8"),
        (b"training: {batch: 2\n", "not valid YAML"),
        (b"? {a: 1}\n: 2\n", "not valid YAML"),
        (b"training: 2020-99-99\n", "not valid YAML"),
        (b"[" * 100_000, "not valid YAML"),
        (b"", "not a mapping"),
        (b"- 1\n", "not a mapping"),
    ],
)
def test_a_file_that_is_no_configuration_is_explained(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "own.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        load(ROOT / "config.yaml", tmp_path / "own.yaml")
    assert caught.value.where == str(tmp_path / "own.yaml")


def test_a_folder_or_nothing_in_place_of_a_configuration_is_explained(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.yaml"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path)
