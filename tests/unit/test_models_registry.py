"""The registry, the size rules and the counts, all without torch."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.counting import count
from lmu_scaling.errors import ModelError
from lmu_scaling.models import Architecture, ModelSpec, architecture, register, resolve, variants

SOLVED = [name for name in variants() if architecture(name).ffn_rule == "solve"]


def test_the_four_variants_register_themselves():
    assert {"lmu", "lmu_attention", "transformer", "lstm"} <= set(variants())


def test_planning_and_counting_import_neither_torch_nor_numpy():
    code = (
        "import sys; from lmu_scaling import counting; from lmu_scaling.models import variants, resolve;"
        "[counting.count(resolve(v, 48, 256, 4096)) for v in variants()];"
        "assert not {'torch', 'numpy', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_variant_is_answered_with_the_nearest_name():
    with pytest.raises(ModelError, match="did you mean 'transformer'"):
        architecture("transfomer")


def test_two_architectures_cannot_share_a_name():
    with pytest.raises(ModelError, match="two different"):
        register(Architecture(name="lmu", label="other", blocks=1, sublayers=("ffn",)))


@pytest.mark.parametrize("variant", variants())
def test_a_spec_survives_json(variant):
    spec = resolve(variant, 48, 256, 4096)
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.asdict()))) == spec


def test_a_spec_with_an_unknown_field_is_refused():
    with pytest.raises(ModelError, match="colour"):
        ModelSpec.from_dict(resolve("lmu", 48, 256, 4096).asdict() | {"colour": "red"})


def test_fields_that_a_variant_does_not_use_are_none():
    lstm = resolve("lstm", 48, 256, 4096, q=60, heads=7, theta=10)
    assert (lstm.q, lstm.q_reduced, lstm.theta, lstm.heads, lstm.ffn, lstm.softmax_scale) == (None,) * 6
    assert resolve("transformer", 48, 256, 4096).q is None
    assert resolve("lmu", 48, 256, 4096).heads is None


@pytest.mark.parametrize("variant", SOLVED)
@given(d=st.integers(12, 75).map(lambda k: 4 * k))
@settings(deadline=None, max_examples=25)
def test_the_solved_width_brings_n_nearest_to_24_d2(variant, d):
    spec = resolve(variant, d, 1024, 50257)
    target = 24 * d * d
    error = abs(count(spec).n_exact - target)
    if d >= 100:  # below, one unit of d' is a coarser step than 0.5 % of N
        assert error <= 0.0025 * target
    for other in (spec.ffn - 1, spec.ffn + 1):
        assert error <= abs(count(resolve(variant, d, 1024, 50257, ffn=other)).n_exact - target)


def test_embedding_and_positions_stay_outside_n():
    small, large = (resolve("transformer", 48, n, v) for n, v in ((128, 1000), (1024, 50257)))
    assert count(small).n_exact == count(large).n_exact
    assert count(large).n_total == count(large).n_exact + 48 * (50257 + 1024)
    assert count(resolve("lmu", 48, 1024, 50257)).n_positions == 0


def test_kaplans_count_of_the_transformer_is_24_d2():
    assert count(resolve("transformer", 96, 1024, 50257)).n_kaplan == 24 * 96 * 96


@pytest.mark.parametrize("variant", variants())
def test_training_costs_three_forward_passes_and_the_rows_add_up(variant):
    counts = count(resolve(variant, 64, 512, 4096))
    assert counts.flops_forward == sum(entry.repeats * entry.row.flops for entry in counts.rows)
    assert counts.flops_training == 3 * (counts.flops_forward + 2 * 64 * 4096)


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("lmu", {"q": 300, "theta": 200}, "exceeds theta"),
        ("lmu", {"theta_per_q": 0.5}, "exceeds theta"),
        ("lmu", {"q": 10, "q_reduced": 20}, "exceeds q"),
        ("lmu_attention", {"heads": 5}, "not divisible"),
        ("lmu", {"blocks": 0}, "blocks must be"),
        ("lmu", {"ffn": -3}, "ffn must be"),
        ("lmu", {"softmax_scale": "sqrt"}, "softmax_scale"),
        ("lmu", {"dropout": 1.0}, "dropout"),
        ("lmu_attention", {"blocks": 40}, "no FFN fits"),
        ("mamba", {}, "unknown model variant"),
    ],
)
def test_contradictory_sizes_are_refused(variant, changes, message):
    with pytest.raises(ModelError, match=message):
        resolve(variant, 48, 256, 4096, **changes)
