"""Evaluation: the losses are those of plain torch, whatever the batch, and sums are consistent with each other."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from lmu_scaling.errors import ResultsError
from lmu_scaling.evaluation.evaluate import evaluate, evaluate_split, load_model, plan_batches
from lmu_scaling.evaluation.losses import token_losses
from lmu_scaling.models import resolve
from lmu_scaling.models.network import build
from lmu_scaling.runtime import sha256_bytes, write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.store import TokenStore
from tests import toy

VOCAB, CONTEXT = 300, 16
VARIANTS = ("lmu", "lmu_attention", "transformer", "lstm")


def write_tokens(root, documents: dict[str, list[np.ndarray]]):
    """Shards and an index as stage `tokens` writes them, with the given documents."""
    shards, splits = [], {}
    root.mkdir(parents=True, exist_ok=True)
    for split, texts in documents.items():
        stream = np.concatenate([np.append(text, VOCAB - 1) for text in texts]).astype(np.uint16)
        data = stream.tobytes()
        (root / f"{split}.bin").write_bytes(data)
        shards.append({"file": f"{split}.bin", "split": split, "tokens": len(stream), "sha256": sha256_bytes(data)})
        splits[split] = {"bytes": 4 * len(stream), "documents": len(texts), "unigram_loss": 5.0}
    index = {"vocab": VOCAB, "eot": VOCAB - 1, "digest": "d1", "dtype": "uint16", "splits": splits, "shards": shards}
    write_json(root / "index.json", index)
    return root


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    rng = np.random.default_rng(0)

    def texts(count):
        return [rng.integers(0, VOCAB - 1, rng.integers(5, 60)) for _ in range(count)]

    return write_tokens(tmp_path_factory.mktemp("tokens"), {"validation": texts(3), "test": texts(9)})


def model(variant="lmu", seed=0):
    spec = resolve(variant, 16, CONTEXT, VOCAB)
    network = build(spec, seed=seed, compile="off")
    with torch.no_grad():
        network.head_weight.mul_(20)  # far from uniform, so that mistakes show
    return network.eval()


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_are_those_of_plain_torch_on_three_documents(tokens, variant):
    """The independent computation: window after window, whole logits, torch's own cross-entropy, float64 mean."""
    store, network = TokenStore(tokens, "validation"), model(variant)
    stream = torch.from_numpy(store.slice(0, len(store)).astype(np.int64))
    assert store.documents == 3
    losses = []
    with torch.no_grad():
        for start in range(0, len(stream) - 1, CONTEXT):
            window = stream[start : start + CONTEXT + 1]
            logits = network(window[None, :-1])[0]
            losses.append(torch.nn.functional.cross_entropy(logits, window[1:], reduction="none").double())
    expected = torch.cat(losses)
    summary = evaluate_split(network, store, None).summary(1.0)
    assert summary["tokens"] == len(stream) - 1
    assert summary["loss"] == pytest.approx(float(expected.mean()), abs=1e-6)
    assert np.exp(summary["loss"]) == pytest.approx(float(expected.mean().exp()), rel=1e-6)


@pytest.mark.parametrize("batch", [1, 2, 7, 100])
def test_the_result_does_not_depend_on_the_batch(tokens, batch):
    store, network = TokenStore(tokens, "test"), model()
    one, other = (evaluate_split(network, store, None, batch=size) for size in (3, batch))
    assert one.summary(1.0)["loss"] == pytest.approx(other.summary(1.0)["loss"], abs=1e-6)
    pd.testing.assert_frame_equal(one.per_token(), other.per_token(), atol=1e-5)


def test_losses_per_position_sequence_and_document_average_to_the_total(tokens):
    sums = evaluate_split(model(), TokenStore(tokens, "test"), None)
    total = sums.summary(1.0)["loss"]
    window = sums.per_token().query("axis == 'window'")
    rows = sums.sequences()
    assert np.average(window["mean"], weights=window["count"]) == pytest.approx(total, abs=1e-12)
    assert np.average(rows["loss"], weights=rows["tokens"]) == pytest.approx(total, abs=1e-12)
    assert sums.document_total.sum() / sums.document_tokens.sum() == pytest.approx(total, abs=1e-12)


def test_the_tokens_behind_the_last_whole_window_are_evaluated_too(tokens):
    store = TokenStore(tokens, "test")
    sums = evaluate_split(model(), store, None)
    assert (len(store) - 1) % CONTEXT, "the fixture must have a remainder"
    assert sums.summary(1.0)["tokens"] == len(store) - 1
    assert sums.sequences()["tokens"].iloc[-1] == (len(store) - 1) % CONTEXT


def test_document_positions_count_visible_tokens_of_the_same_document(tokens):
    """Brute force over the stream: position = preceding tokens of the document, all of them inside the window."""
    store = TokenStore(tokens, "test")
    stream = store.slice(0, len(store))
    counts = np.zeros(CONTEXT + 1, int)
    begin = 0
    for place in range(1, len(stream)):
        if stream[place - 1] == VOCAB - 1:
            begin = place
        window_start = (place - 1) // CONTEXT * CONTEXT
        preceding = place - begin
        if preceding >= 1 and begin >= window_start:
            counts[preceding] += 1
    frame = evaluate_split(model(), store, None).per_token().query("axis == 'document'")
    found = np.zeros(CONTEXT + 1, int)
    found[frame["position"]] = frame["count"]
    np.testing.assert_array_equal(found, counts)


def test_neither_tiles_of_tokens_nor_the_kernel_change_a_loss(monkeypatch):
    network, ids = model(), torch.randint(0, VOCAB, (3, CONTEXT + 1))
    by_kernel = token_losses(network, ids)
    network.compiled = False
    whole = token_losses(network, ids)
    torch.testing.assert_close(by_kernel, whole, atol=1e-5, rtol=0)
    monkeypatch.setattr("lmu_scaling.evaluation.losses.TILE_CPU", 16 * VOCAB)
    torch.testing.assert_close(token_losses(network, ids), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("tokens_", "limit"), [(1, None), (2, None), (17, None), (18, None), (160, 3), (161, 3)])
def test_batches_cover_every_target_once_or_the_limit(tokens_, limit):
    batches = list(plan_batches(tokens_, 16, limit, 4))
    windows = np.concatenate([i for i, _ in batches]) if batches else np.array([])
    assert len(set(windows)) == len(windows)
    targets = sum(len(i) * m for i, m in batches)
    assert targets == (tokens_ - 1 if limit is None else limit * 16)


def test_evaluation_writes_what_the_contract_says(tokens, tmp_path):
    network = model()
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    spec = toy.spec("lmu") | {"model": network.spec.asdict()}
    write_json(tmp_path / "spec.json", spec)
    paths = {name: tmp_path / f"{name}.out" for name in ("summary", "per_token", "sequences")}
    evaluate(
        tmp_path / "spec.json",
        tmp_path / "weights.safetensors",
        tokens / "index.json",
        max_sequences=None,
        **paths,
        device="cpu",
    )
    summary = json.loads(paths["summary"].read_text())
    assert summary["spec_hash"] == RunSpec.from_dict(spec).hash
    assert summary["tokens_digest"] == "d1"
    test = summary["splits"]["test"]
    assert test["bits_per_byte"] == pytest.approx(test["loss"] / np.log(2) / 4)
    assert test["unigram_loss"] == 5.0
    assert {"split", "axis", "position", "mean", "se", "count"} == set(pd.read_parquet(paths["per_token"]).columns)
    rows = pd.read_parquet(paths["sequences"])
    assert {"split", "window", "document", "loss", "tokens", "bins"} == set(rows.columns)
    assert set(rows["split"]) == {"validation", "test"}


def test_weights_of_another_model_are_refused(tmp_path):
    save_file(model("transformer").state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(ResultsError, match="do not belong"):
        load_model(model("lmu").spec, tmp_path / "w.safetensors")


def test_a_damaged_weights_file_is_explained(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"not weights")
    with pytest.raises(ResultsError, match="cannot read the weights"):
        load_model(model().spec, tmp_path / "w.safetensors")


def test_tokens_of_another_vocabulary_are_refused(tokens):
    other = build(resolve("lstm", 8, CONTEXT, VOCAB + 1), seed=0)
    with pytest.raises(ResultsError, match="knows 301 tokens"):
        evaluate_split(other, TokenStore(tokens, "test"), None)


def test_a_diverged_model_gets_null_instead_of_a_loss(tokens, tmp_path):
    network = model()
    with torch.no_grad():
        network.head_weight.fill_(float("nan"))
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    write_json(tmp_path / "spec.json", toy.spec("lmu") | {"model": network.spec.asdict()})
    evaluate(
        tmp_path / "spec.json",
        tmp_path / "w.safetensors",
        tokens / "index.json",
        max_sequences=2,
        summary=tmp_path / "s.json",
        per_token=tmp_path / "p.parquet",
        sequences=tmp_path / "q.parquet",
        device="cpu",
    )
    assert json.loads((tmp_path / "s.json").read_text())["splits"]["test"]["loss"] is None
