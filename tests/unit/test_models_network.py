"""Every registered variant: causal, equal in parallel and step by step, counted, seeded, of any length where it may."""

import pytest
import torch

from lmu_scaling.counting import count
from lmu_scaling.errors import ModelError
from lmu_scaling.models import architecture, resolve, variants
from lmu_scaling.models.network import build

VOCAB, CONTEXT = 97, 64


def small(variant, **changes):
    return resolve(variant, 16, CONTEXT, VOCAB, **changes)


def tokens(batch, n, seed=0):
    return torch.randint(0, VOCAB, (batch, n), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("d", [16, 48])
def test_the_network_has_as_many_parameters_as_counted(variant, d):
    spec = resolve(variant, d, 256, 1000)
    model, counts = build(spec), count(spec)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    assert sizes["head_weight"] == counts.n_embedding
    assert sizes.get("positions", 0) == counts.n_positions
    assert sum(sizes.values()) == counts.n_total
    assert sum(sizes.values()) - sizes["head_weight"] - sizes.get("positions", 0) == counts.n_exact


@pytest.mark.parametrize("variant", variants())
def test_saved_weights_are_trainable_parameters_only(variant):
    model = build(small(variant))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("t", [1, 20, 63])
def test_changing_a_token_leaves_earlier_outputs_alone(variant, t):
    """Within the rounding of the FFT (1e-6 absolute, logits are of order 1); and it does change later ones."""
    model = build(small(variant), seed=3)
    ids = tokens(2, 64)
    changed = ids.clone()
    changed[:, t] = (changed[:, t] + 1) % VOCAB
    with torch.no_grad():
        before, after = model(ids), model(changed)
    assert (before - after)[:, :t].abs().max() < 1e-6
    assert (before - after)[:, t].abs().max() > 1e-2 * before.abs().max()


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("n", [1, 33, 64])
def test_parallel_equals_step_by_step(variant, n):
    model = build(small(variant), seed=4)
    ids = tokens(3, n)
    state = model.initial_state(3)
    with torch.no_grad():
        parallel = model(ids)
        for t in range(n):
            logits, state = model.step(ids[:, t], state)
            torch.testing.assert_close(logits, parallel[:, t], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("n", [1, 7, 129])
def test_any_length_works_unless_positions_are_learned(variant, n):
    model = build(small(variant))
    if architecture(variant).positions == "learned" and n > CONTEXT:
        with pytest.raises(ModelError, match="learned positions"):
            model(tokens(1, n))
    else:
        assert model(tokens(1, n)).shape == (1, n, VOCAB)


def test_a_model_with_positions_refuses_to_generate_past_its_context():
    model = build(resolve("transformer", 16, 3, VOCAB))
    state = model.initial_state(1)
    with torch.no_grad():
        for _ in range(3):
            _, state = model.step(tokens(1, 1)[0], state)
        with pytest.raises(ModelError, match="learned positions"):
            model.step(tokens(1, 1)[0], state)


@pytest.mark.parametrize("variant", variants())
def test_the_seed_alone_decides_the_weights(variant):
    torch.manual_seed(1)
    first = build(small(variant), seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second, other = build(small(variant), seed=5), build(small(variant), seed=6)
    assert torch.equal(before, torch.get_rng_state())
    for (name, a), b, c in zip(first.named_parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert "bias" in name or "norm" in name or not torch.equal(a, c), name


@pytest.mark.parametrize("variant", variants())
def test_every_parameter_gets_a_gradient(variant):
    model = build(small(variant), seed=0)
    model(tokens(2, 64)).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


def test_initial_weights_follow_the_documented_rules():
    model = build(resolve("lmu", 48, 64, 5000), seed=0)
    assert model.head_weight.std().item() == pytest.approx(0.02, rel=0.02)
    layer = model.layers[1]
    bound = (6 / (6 + 60)) ** 0.5
    assert layer.L.abs().max() <= bound
    assert layer.L.abs().max() > 0.95 * bound
    assert layer.p.abs().max() <= (6 / (1 + 6)) ** 0.5
    assert not layer.bias.any()


def test_bf16_autocast_keeps_the_memory_and_its_softmax_in_float32():
    model = build(resolve("lmu_attention", 48, 64, VOCAB), seed=0)
    with torch.no_grad():
        exact = model(tokens(2, 64))
    seen = {}
    for index, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda _m, _i, out, index=index: seen.update({index: out.dtype}))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        loose = model(tokens(2, 64))
    assert [seen[index] for index in (1, 4, 7)] == [torch.float32] * 3  # the LMUs
    assert seen[0] == torch.bfloat16  # the attention before them
    assert torch.isfinite(loose).all()
    assert (loose.float() - exact).abs().max() < 0.05


@pytest.mark.parametrize(("d", "body"), [(32, torch.float32), (48, torch.bfloat16)])
@pytest.mark.parametrize("variant", ["transformer", "lmu_attention", "transformer_modern", "transformer_rotary"])
def test_on_a_cpu_the_body_is_bfloat16_only_where_that_is_faster(variant, d, body, monkeypatch):
    """Linear layers of wide models, and attention never: torch's own in bfloat16 takes up to 2.4 times as long."""
    seen, real = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*parts, **how):
        seen.extend(part.dtype for part in parts)
        return real(*parts, **how)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model = build(resolve(variant, d, 64, VOCAB), seed=0, compile="off")
    outputs = []
    model.layers[0].out.register_forward_hook(lambda _m, _i, out: outputs.append(out.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.hidden(tokens(2, 64)).sum().backward()
    assert outputs == [body]
    assert set(seen) == {torch.float32}
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())


def test_no_nan_at_the_papers_largest_memory():
    model = build(resolve("lmu", 20, 1024, VOCAB, q=250, q_reduced=25, theta=1000, blocks=1, ffn=8), seed=0)
    logits = model(tokens(1, 1024))
    logits.square().mean().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_unknown_compile_mode_is_refused():
    with pytest.raises(ModelError, match="compile mode"):
        build(small("lmu"), compile="maybe")


@pytest.mark.parametrize("scale", ["none", "sqrt_d"])
def test_softmax_scale_is_one_or_inverse_root_d(scale):
    layer = build(small("lmu", softmax_scale=scale), seed=0).layers[1]
    assert layer.scale == (1.0 if scale == "none" else 0.25)


@pytest.mark.parametrize("variant", ["lmu", "lstm"])
def test_generation_keeps_a_state_of_constant_size(variant):
    model = build(small(variant), seed=0)
    state = model.initial_state(1)
    sizes = set()
    with torch.no_grad():
        for t in range(3 * CONTEXT):
            _, state = model.step(torch.tensor([t % VOCAB]), state)
            sizes.add(sum(tensor.numel() for layer in state.layers for tensor in tensors_of(layer)))
    assert len(sizes) == 1


def tensors_of(layer_state):
    if layer_state is None:
        return []
    return [layer_state.m_bqd] if hasattr(layer_state, "m_bqd") else list(layer_state)
