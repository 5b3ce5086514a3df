"""Generation speaks from the weights that were trained, repeatably, and within a transformer's context."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lmu_scaling.errors import ConfigError, ResultsError
from lmu_scaling.models import variants
from lmu_scaling.models.network import build
from lmu_scaling.runtime import write_json
from lmu_scaling.training.generate import generate, load_model, sample
from lmu_scaling.training.train import train
from tests import toy


@pytest.mark.parametrize("variant", variants())
def test_greedy_generation_takes_the_best_token_of_the_parallel_form(variant: str) -> None:
    from lmu_scaling.models import resolve

    model = build(resolve(variant, 8, 32, 50), seed=3, compile="off").eval()
    ids = [1, 2, 3]
    said = list(sample(model, ids, 10, 0.0, torch.Generator()))
    with torch.no_grad():
        logits = model(torch.tensor([ids + said]))[0]
    assert said == logits[2:-1].argmax(-1).tolist()


def test_the_same_seed_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "spec.json", toy.spec("lmu", 3))
    outputs = {"weights": "weights.safetensors", "history": "h.parquet", "result": "r.json", "live": "live"}
    tokens = toy.write_tokens(tmp_path / "tokens")
    train(tmp_path / "spec.json", tokens, **{k: tmp_path / v for k, v in outputs.items()}, device="cpu", compile="off")
    capsys.readouterr()
    texts = []
    for seed in (1, 1, 2):
        generate(tmp_path, "ab", length=40, temperature=1.0, seed=seed)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("ab") and len(texts[0]) > 20


def test_a_run_without_weights_is_explained(tmp_path: Path) -> None:
    write_json(tmp_path / "spec.json", toy.spec("lmu", 3))
    with pytest.raises(ResultsError, match="no weights yet"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", value) for value in (-1.0, float("nan"), float("inf"), 1e9)],
        *[("length", value) for value in (0, -5, 10**12)],
        *[("threads", value) for value in (0, -1, 10**6)],
        *[("seed", value) for value in (-1, 2**64)],
    ],
)
def test_options_without_sense_are_refused_before_the_model_is_read(tmp_path: Path, name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{name} cannot be "):
        generate(tmp_path, "ab", **{name: value})


def test_a_prompt_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """Python turns undecodable bytes of the command line into surrogates."""
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        generate(tmp_path, b"\xff\xfe".decode("utf-8", "surrogateescape"))
