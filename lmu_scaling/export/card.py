"""The model card, filled from the records of a run: spec, manifest, evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lmu_scaling.errors import UserError
from lmu_scaling.manifests import read_sealed
from lmu_scaling.models import architecture
from lmu_scaling.paths import DATASETS
from lmu_scaling.runtime import read_json, si
from lmu_scaling.spec import RunSpec

NORMAL_95 = 1.96
PAPER = "https://arxiv.org/abs/2110.02402"


def model_card(run: Path) -> str:
    """The text of README.md. Everything it says is read from the files of results/<experiment>."""
    results = run.resolve().parents[1]
    spec, result = RunSpec.read(run / "spec.json"), read_json(run / "result.json")
    manifest = _optional(run / "train.manifest.json", sealed=True)
    source = corpus(spec.data.corpus)
    head = {
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["lmu", "legendre-memory-unit", "lmu-scaling"],
    }
    blocks = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n",
        f"# {architecture(spec.model.variant).label}, {si(result['n_exact'])} non-embedding parameters\n",
        f"Run `{run.resolve().name}` of the experiment `{results.name}` of lmu-scaling, a replication of "
        f"[Language Modeling using LMUs]({PAPER}).\n",
        _usage(),
        _training(spec, result, source),
        _losses(_optional(results / "evaluation" / run.resolve().name / "summary.json")),
        _limits(spec, result),
        _provenance(manifest),
    ]
    return "\n".join(blocks)


def corpus(name: str) -> dict[str, Any]:
    """The corpus in the catalogue: title, licence, citation."""
    entries = yaml.safe_load(DATASETS.read_text("utf-8"))
    unknown = {"title": name, "licence": "unknown", "citation": "unknown"}
    return entries.get(name, unknown)


def _usage() -> str:
    return """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer("<|endoftext|>The state of the Union", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens=50)[0]))
```

Texts begin with `<|endoftext|>`, as in training. `generate()` carries a recurrent state; for layers without global
attention its size does not grow with the text.
"""


def _training(spec: RunSpec, result: dict[str, Any], source: dict[str, Any]) -> str:
    rows = {
        "corpus": f"{source['title']} ({source['licence']}; {source['citation']})",
        "tokens": f"{result['tokens']:,} ({result['epochs']:.2g} epochs)",
        "vocabulary": f"GPT-2's encoding with {spec.model.vocab:,} tokens",
        "context": f"{spec.model.context} tokens",
        "optimiser": f"Adam, {spec.training.steps:,} steps of {spec.training.batch} sequences, "
        f"peak learning rate {result['learning_rate']:g}, seed {spec.training.seed}",
        "compute": f"{result['flops_per_token'] * result['tokens']:.3g} FLOPs on {result['machine']['device']} "
        f"({result['machine']['precision']}), {result['machine']['seconds']:.0f} s",
    }
    return "## Training\n\n" + _table(("", ""), [[key, value] for key, value in rows.items()])


def _losses(summary: dict[str, Any]) -> str:
    """Loss per split with its 95 % interval; documents are the sampling unit where there are several."""
    if not summary:
        return "## Losses\n\nThis run was not evaluated.\n"
    rows = []
    splits = {key: value for key, value in summary.get("splits", summary).items() if isinstance(value, dict)}
    for name, facts in splits.items():
        if "loss" not in facts:
            continue
        error = facts.get("se_documents") or facts.get("se_sequences")
        half = NORMAL_95 * error if error else None
        interval = f"{facts['loss'] - half:.3f} to {facts['loss'] + half:.3f}" if half else "unknown"
        bits = facts.get("bits_per_byte")
        rows.append([name, f"{facts['loss']:.3f}", interval, f"{bits:.3f}" if bits else "", f"{facts['tokens']:,}"])
    head = ("split", "loss [nats per token]", "95 % interval", "bits per byte", "tokens")
    return (
        "## Losses\n\n"
        + _table(head, rows)
        + "\nThe intervals are over documents of this corpus, not over trainings.\n"
    )


def _limits(spec: RunSpec, result: dict[str, Any]) -> str:
    size = f"{result['n_exact']:,} non-embedding parameters trained on {si(result['tokens'])} tokens"
    return f"""## Limits

A model for research on scaling, with {size}: its text is not reliable, may repeat what the corpus says, biases
included, and has not been filtered or aligned. It knows only the corpus `{spec.data.corpus}`. Losses of models with
another vocabulary or corpus cannot be compared with those above.
"""


def _provenance(manifest: dict[str, Any]) -> str:
    if not manifest:
        return ""
    rows = [["code", manifest.get("code", "")], ["commit", manifest.get("git", {}).get("commit", "unknown")]]
    rows += [["spec", manifest.get("spec_hash", "")], ["trained", manifest.get("ended", "")]]
    packages = manifest.get("environment", {}).get("packages", {})
    rows.append(["software", ", ".join(f"{name} {version}" for name, version in packages.items())])
    return "## Provenance\n\n" + _table(("", ""), rows)


def _table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _optional(path: Path, sealed: bool = False) -> dict[str, Any]:
    try:
        return read_sealed(path) if sealed else read_json(path)
    except UserError:
        return {}
