"""Positions, embedding scale, residual gain and the modern transformer."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lmu_scaling.counting import count
from lmu_scaling.errors import ModelError
from lmu_scaling.models import resolve
from lmu_scaling.models.network import build
from lmu_scaling.models.rotary import rotate

VOCAB, CONTEXT = 50, 24
IDS = torch.randint(VOCAB, (2, CONTEXT), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("e", [12, 51])
def test_rotation_keeps_lengths_and_makes_products_depend_on_distance_only(e):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, e, generator=generator)
    products = [
        float((rotate(q, start + distance) * rotate(k, start)).sum()) for distance in (0, 3) for start in (0, 5, 90)
    ]
    assert products[:3] == pytest.approx([products[0]] * 3, rel=1e-4)
    assert products[3:] == pytest.approx([products[3]] * 3, rel=1e-4)
    assert products[0] != pytest.approx(products[3], rel=1e-2)
    assert float(rotate(q, 7).norm()) == pytest.approx(float(q.norm()), rel=1e-6)


def test_rotation_turns_pair_i_by_position_times_its_rate():
    x = torch.zeros(1, 1, 3, 4)
    x[..., 0] = 1.0  # the first component of pair 0
    x[..., 1] = 1.0  # the first component of pair 1
    turned = rotate(x)[0, 0, 2]
    angles = torch.tensor([2.0, 2.0 / 10_000**0.5])
    assert torch.allclose(turned, torch.cat([angles.cos(), angles.sin()]), atol=1e-6)


@pytest.mark.parametrize("variant", ["transformer", "lmu_attention", "transformer_modern", "transformer_rotary"])
def test_attention_with_rotary_positions_sees_the_order(variant):
    """Without positions, exchanging two earlier tokens cannot change what a single attention layer gives later."""
    swapped = IDS.clone()
    swapped[:, [0, 1]] = IDS[:, [1, 0]]
    seen = {}
    for positions in ("none", "rotary"):
        spec = resolve(variant, 16, CONTEXT, VOCAB, positions=positions, blocks=1)
        layer = build(spec, seed=0).layers[0]
        x = torch.randn(VOCAB, 16, generator=torch.Generator().manual_seed(1))
        seen[positions] = float((layer(x[IDS]) - layer(x[swapped]))[:, 2:].detach().abs().max())
    assert seen["none"] < 1e-5
    assert seen["rotary"] > 1e-3


@pytest.mark.parametrize("variant", ["transformer", "transformer_modern", "transformer_rotary", "lmu_attention"])
def test_generation_with_rotary_positions_gives_the_same_logits_as_the_parallel_form(variant):
    model = build(resolve(variant, 16, CONTEXT, VOCAB, positions="rotary"), seed=3)
    with torch.no_grad():
        whole, state = model(IDS), model.initial_state(len(IDS))
        for t in range(CONTEXT):
            logits, state = model.step(IDS[:, t], state)
            assert torch.allclose(logits, whole[:, t], atol=2e-5)


def test_the_embedding_scale_multiplies_the_input_and_leaves_the_head():
    spec = resolve("lstm", 8, CONTEXT, VOCAB)
    plain, scaled = build(spec, seed=0), build(dataclasses.replace(spec, embedding_scale=3.0), seed=0)
    assert torch.equal(plain.head_weight, scaled.head_weight)
    with torch.no_grad():
        plain.head_weight.mul_(3.0)  # input three times as large, and logits as well
        assert torch.allclose(plain(IDS), 3.0 * scaled(IDS), atol=1e-5)


@pytest.mark.parametrize(
    ("variant", "names"), [("transformer", ("out.weight", "outer.weight")), ("lmu", ("outer.weight", ".p"))]
)
def test_the_residual_gain_scales_the_last_projections_only(variant, names):
    spec = resolve(variant, 16, CONTEXT, VOCAB, residual_gain=1.0)
    plain, scaled = build(spec, seed=0), build(dataclasses.replace(spec, residual_gain=0.25), seed=0)
    for (name, a), (_, b) in zip(plain.named_parameters(), scaled.named_parameters(), strict=True):
        gain = 0.25 if name.endswith(names) else 1.0
        assert torch.equal(gain * a, b), name


@pytest.mark.parametrize("d", [48, 64, 92, 120, 144, 204])
def test_the_modern_transformer_has_24_d_squared_parameters(d):
    """The paper's fairness rule, to 0.25 % as for the LMU variants."""
    assert count(resolve("transformer_modern", d, 1024, 50257)).n_exact == pytest.approx(24 * d * d, rel=0.0025)


def test_rotary_positions_need_attention():
    with pytest.raises(ModelError, match="need global attention"):
        resolve("lmu", 16, CONTEXT, VOCAB, positions="rotary")
    with pytest.raises(ModelError, match="positions"):
        resolve("transformer", 16, CONTEXT, VOCAB, positions="sinusoidal")


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["embedding_scale", "residual_gain"])
def test_scales_must_be_positive_and_finite(name, value):
    with pytest.raises(ModelError, match=name):
        resolve("lmu", 16, CONTEXT, VOCAB, **{name: value})
