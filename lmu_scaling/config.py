"""Loading and validating the configuration; its sections are in `sections.py`.

`validate` reports every problem at once: structural ones (pydantic) and semantic ones (`_contradictions`), each with
the key's path, what is allowed, and a hint for typos. Nothing here imports torch: the Snakefile needs it to be quick.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lmu_scaling.corpus.filters import order_problems, registered
from lmu_scaling.errors import ConfigError, ModelError
from lmu_scaling.paths import DATASETS
from lmu_scaling.sections import Config, Size
from lmu_scaling.spec import MAIN, PAPER_RECIPE

AFFECTS_RESULTS = False
DEEPEST = 20  # levels of a configuration; its sections need five

ALTERNATIVE_KEYS = ("recipe", "positions", "embedding_scale", "residual_gain", "theta_per_q", "learning_rate")


def validate(raw: dict[str, Any], where: str = "config.yaml") -> Config:
    """Return the configuration, or raise one ConfigError that lists every problem."""
    problems: list[str] = []
    config = None
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        problems += [_explain(e, raw) for e in error.errors()]
    problems += [p for p in _contradictions(raw) if p not in problems]
    if problems:
        lines = "\n".join(f"  {i}. {p}" for i, p in enumerate(problems, 1))
        raise ConfigError(
            f"the configuration has {len(problems)} problem{'s' * (len(problems) > 1)}; nothing was started\n{lines}",
            where,
            "correct the keys above; every key is explained in workflow/schemas/config.schema.json and in config.yaml",
        )
    assert config is not None
    return config


def load(*paths: str | Path) -> Config:
    """Read a configuration and its overlays, later ones winning key by key, as Snakemake does."""
    merged: dict[str, Any] = {}
    for path in paths:
        merged = _overlay(merged, read(path))
    return validate(merged, " + ".join(str(p) for p in paths))


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys in a mapping, of which YAML's parser would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and keys.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key.value!r}", node.value[-1][0].start_mark
                )
        return super().construct_mapping(node, deep)


def read(path: str | Path) -> dict[str, Any]:
    """Load a YAML mapping; reject duplicate keys."""
    try:
        found = _Loader(Path(path).read_text("utf-8")).get_single_data()
        _check_depth(found)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", str(path), "check the path") from error
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {error.start}"
        raise ConfigError(what, str(path), "save the file as UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"not valid YAML: {error}", str(path), "correct the file") from error
    if not isinstance(found, dict):
        raise ConfigError("not a mapping of sections", str(path), "correct the file; config.yaml shows the form")
    return found


def _check_depth(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a mapping that contains itself, by an alias, or is nested beyond any use."""
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} levels deep, or an alias refers to itself")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(item, depth + 1)


def _overlay(base: dict[str, Any], layer: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in layer.items():
        old = out.get(key)
        out[key] = _overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _explain(error: Any, raw: dict[str, Any]) -> str:
    """One line: the key's path, what is wrong, what is allowed, and a hint."""
    filters = list(registered())
    loc = [part for part in error["loc"] if part not in filters]
    path = ".".join(str(part) for part in loc)
    if error["type"] == "extra_forbidden":
        allowed = _keys_at(loc[:-1], raw)
        return f"{path}: unknown key{_hint(str(loc[-1]), allowed)}; allowed here: {', '.join(allowed) or 'none'}"
    if error["type"] == "missing":
        return f"{path}: missing"
    if error["type"].startswith("union_tag"):
        given = error["input"].get("name") if isinstance(error["input"], dict) else error["input"]
        return f"{path}: unknown filter {given!r}{_hint(str(given), filters)}; allowed: {', '.join(filters)}"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{path}: {message} (got {error['input']!r})"


def _hint(word: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _keys_at(loc: list[Any], raw: dict[str, Any]) -> list[str]:
    """The keys that the model at `loc` allows, found by walking the schema beside the raw value."""
    schema: dict[str, Any] = Config.model_json_schema()
    node, value = schema, raw
    for part in loc:
        if isinstance(value, dict) and part not in node.get("properties", {}):
            return []  # below a key that is not a string, which is reported separately
        node = node["items"] if isinstance(value, list) else node.get("properties", {}).get(part, {})
        value = value[part]
        for option in [node, *node.get("anyOf", []), *node.get("allOf", [])]:
            if "$ref" in option:
                node = schema["$defs"][option["$ref"].rsplit("/", 1)[-1]]
            elif "items" in option:
                node = option
        if "discriminator" in node:
            name = node["discriminator"]["mapping"][value["name"]].rsplit("/", 1)[-1]
            node = schema["$defs"][name]
        if isinstance(node.get("additionalProperties"), dict) and "properties" not in node:
            ref = node["additionalProperties"]["$ref"]
            node = {"properties": {key: {"$ref": ref} for key in value}}
    return sorted(node.get("properties", {}))


def _contradictions(raw: dict[str, Any]) -> Iterator[str]:
    """Contradictions between values. Works on the raw mapping, so that structural problems do not hide them."""
    yield from _truths(raw, "")
    yield from _split_problems(_get(raw, "corpus", "split"))
    yield from _source_problems(*(_get(raw, "corpus", key) for key in ("source", "path", "sample")))
    yield from _filter_problems(_list(raw, "corpus", "filters"))
    yield from _variant_problems(raw)
    yield from _size_problems(raw)
    yield from _name_problems(raw)
    yield from _tuning_problems(raw)
    yield from _alternative_problems(raw)
    yield from _repeated(raw)
    yield from _interval_problems(raw)
    yield from _paper_problems(raw)


def _truths(value: Any, path: str) -> Iterator[str]:
    """Only filters have settings that are true or false. YAML reads `yes` as true, and Python true as the number 1."""
    if isinstance(value, dict) and path.startswith(".corpus.filters.") and str(value.get("name")) in registered():
        fields = registered()[str(value["name"])].model_fields
        value = {key: item for key, item in value.items() if key not in fields or fields[key].annotation is not bool}
    if isinstance(value, bool):
        yield f"{path.lstrip('.')}: true and false are not values of this key (got {value!r})"
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _truths(item, f"{path}.{key}")


def _interval_problems(raw: dict[str, Any]) -> Iterator[str]:
    """Too few draws cannot resolve the percentiles: the interval would be narrower than stated."""
    draws, confidence = (_get(raw, "analysis", key) for key in ("draws", "confidence"))
    if isinstance(draws, int) and isinstance(confidence, float) and 0 < confidence < 1:
        needed = math.ceil(round(2 / (1 - confidence), 6))
        if draws < needed:
            yield f"analysis.draws: intervals of {confidence} need at least {needed:,} draws (got {draws:,})"


def _get(raw: Any, *path: str) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _list(raw: Any, *path: str) -> list[Any]:
    """The list at this path; empty if it is not a list, which pydantic reports."""
    value = _get(raw, *path)
    return value if isinstance(value, list) else []


def _split_problems(split: Any) -> Iterator[str]:
    shares = list(split.values()) if isinstance(split, dict) else []
    if len(shares) == 3 and all(isinstance(s, int | float) for s in shares) and abs(sum(shares) - 1) > 1e-9:
        yield f"corpus.split: the shares sum to {sum(shares):g}, not to 1 (got {split!r})"


def _source_problems(source: Any, path: Any, sample: Any) -> Iterator[str]:
    catalogue = read(DATASETS)
    known = sorted(catalogue)
    if isinstance(source, str) and source not in known:
        yield f"corpus.source: unknown source {source!r}{_hint(source, known)}; allowed: {', '.join(known)}"
        return
    kind = _get(catalogue, source, "kind") if isinstance(source, str) else None
    if kind == "package" and path is not None:
        yield f"corpus.path: source {source!r} is an installed package and reads no path; set corpus.source: local"
    if sample is not None and kind not in (None, "download"):
        archives = sorted(name for name, entry in catalogue.items() if entry.get("kind") == "download")
        yield f"corpus.sample: source {source!r} is no archive on a server; only {', '.join(archives)} can be sampled"
    if kind == "local" and path is None:
        obtain = _get(catalogue, source, "obtain")
        yield f"corpus.path: missing; source {source!r} is a file or folder of yours{f' ({obtain})' if obtain else ''}"


def _filter_problems(filters: list[Any]) -> Iterator[str]:
    names = [_get(item, "name") for item in filters]
    for problem, remedy in order_problems([name for name in names if isinstance(name, str) and name in registered()]):
        yield f"corpus.filters: {problem}; {remedy}"


def _variant_problems(raw: dict[str, Any]) -> Iterator[str]:
    from lmu_scaling.models import variants

    known = variants()
    places = [("models.variants", _list(raw, "models", "variants"))]
    for part in ("budgets", "alternatives"):
        for i, entry in enumerate(_list(raw, "training", part)):
            places.append((f"training.{part}.{i}.variants", _list(entry, "variants")))
    settings = _get(raw, "models", "per_variant")
    places.append(("models.per_variant", list(settings) if isinstance(settings, dict) else []))
    for path, names in places:
        for name in names:
            if name not in known:
                yield f"{path}: unknown variant {name!r}{_hint(str(name), known)}; allowed: {', '.join(known)}"


def _size_problems(raw: dict[str, Any]) -> Iterator[str]:
    """Every variant must be buildable at every size: q <= theta, d divisible by heads, and so on."""
    from lmu_scaling.models import resolve, variants

    section, vocab = _get(raw, "models"), _get(raw, "tokens", "vocab") or 50257
    if not isinstance(section, dict) or not isinstance(section.get("sizes"), list):
        return
    rules = {k: section[k] for k in ("theta_per_q", "softmax_scale", "dropout") if k in section}
    trained = [section, *_list(raw, "training", "budgets")]
    own_rules: dict[str, Any] = section["per_variant"] if isinstance(section.get("per_variant"), dict) else {}
    known = dict.fromkeys(v for part in trained for v in _list(part, "variants") if v in variants())
    for i, size in enumerate(section["sizes"]):
        if not isinstance(size, dict):
            continue
        own = {k: v for k, v in size.items() if k in Size.model_fields and k not in ("name", "d")}
        for variant in known:
            try:
                resolve(variant, size["d"], section["context"], vocab, **(own | rules | _given(own_rules, variant)))
            except ModelError as error:
                yield f"models.sizes.{i} ({size.get('name', '?')}): {error.what}; {error.remedy}"
                break
            except (TypeError, KeyError, ValueError, OverflowError):
                break  # a structural problem, reported by pydantic


def _given(settings: dict[str, Any], variant: str) -> dict[str, Any]:
    """A variant's settings that are not null."""
    found = settings.get(variant)
    return {key: value for key, value in found.items() if value is not None} if isinstance(found, dict) else {}


def _name_problems(raw: dict[str, Any]) -> Iterator[str]:
    names = [_get(size, "name") for size in _list(raw, "models", "sizes")]
    for name in sorted({str(n) for n in names if names.count(n) > 1}):
        yield f"models.sizes: the name {name!r} is used more than once"
    lender = _get(raw, "training", "tuning", "embedding_scale_from")
    places = [("training.tuning.embedding_scale_from", [] if lender is None else [lender])]
    more = _get(raw, "training", "tuning", "more_trials")
    places.append(("training.tuning.more_trials", list(more) if isinstance(more, dict) else []))
    for part in ("budgets", "alternatives"):
        for i, entry in enumerate(_list(raw, "training", part)):
            places.append((f"training.{part}.{i}.sizes", _list(entry, "sizes")))
    for path, given in places:
        for name in given:
            if name not in names:
                yield f"{path}: no size is called {name!r}{_hint(str(name), [str(n) for n in names])}"


def _tuning_problems(raw: dict[str, Any]) -> Iterator[str]:
    tuning = _get(raw, "training", "tuning")
    rates, scales = (len(_list(tuning, key)) or 1 for key in ("learning_rates", "embedding_scales"))
    for key, grid in (("trials", rates * scales), ("rate_trials", rates)):
        trials = _get(tuning, key)
        if key == "rate_trials" and trials == 0:
            if _get(tuning, "embedding_scale_from") is None:
                yield f"training.tuning.{key}: 0 needs embedding_scale_from, the size whose learning rate all use"
        elif isinstance(trials, int) and trials < grid:
            yield f"training.tuning.{key}: the grid alone has {grid} runs (got {trials})"


def _alternative_problems(raw: dict[str, Any]) -> Iterator[str]:
    """An alternative changes one setting; the name `paper` stands for the paper's recipe, `main` for the main runs."""
    from lmu_scaling.models import architecture, variants

    entries = [entry for entry in _list(raw, "training", "alternatives") if isinstance(entry, dict)]
    names, known = [entry.get("name") for entry in entries], variants()
    for i, entry in enumerate(entries):
        path, name = f"training.alternatives.{i}", entry.get("name")
        given = [key for key in ALTERNATIVE_KEYS if entry.get(key) is not None]
        if len(given) != 1:
            yield f"{path}: exactly one of {', '.join(ALTERNATIVE_KEYS)} must be given (got {len(given)})"
        if names.count(name) > 1:
            yield f"{path}.name: {name!r} is used more than once"
        if entry.get("theta_per_q") is not None:
            for variant in _list(entry, "variants"):
                if variant in known and "theta" not in architecture(variant).fields:
                    yield f"{path}.theta_per_q: {variant} has no LMU"
        if name == MAIN or (name == PAPER_RECIPE) != (entry.get("recipe") == "paper"):
            yield f"{path}.name: {PAPER_RECIPE!r} is the name of recipe: paper, and {MAIN!r} that of the main runs"


def _repeated(raw: dict[str, Any]) -> Iterator[str]:
    """Repeated entries would give one run, not two; numbers are compared as run names format them."""
    training = _get(raw, "training")
    lists = {
        "models.variants": _get(raw, "models", "variants"),
        "training.seeds": _get(training, "seeds"),
        "training.tuning.learning_rates": _get(training, "tuning", "learning_rates"),
        "training.tuning.embedding_scales": _get(training, "tuning", "embedding_scales"),
        "analysis.complexity.lengths": _get(raw, "analysis", "complexity", "lengths"),
    }
    for i, budget in enumerate(_list(training, "budgets")):
        for key in ("variants", "multiples", "sizes", "seeds"):
            lists[f"training.budgets.{i}.{key}"] = _get(budget, key)
    for path, values in lists.items():
        names = [f"{value:g}" if isinstance(value, float) else str(value) for value in _list(values)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{path}: {name} is listed more than once"


def _paper_problems(raw: dict[str, Any]) -> Iterator[str]:
    from lmu_scaling.paper.inputs import modules

    for kind in ("figure", "table"):
        names, known = _list(raw, "paper", f"{kind}s"), modules(kind)
        for name in names:
            if name not in known:
                hint = _hint(str(name), known)
                yield f"paper.{kind}s: no {kind} is called {name!r}{hint}; allowed: {', '.join(known)}"
