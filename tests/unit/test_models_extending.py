"""What docs/method.md promises: its examples hold, and a variant with a layer of its own is one new file."""

import doctest
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NEW_VARIANT = '''
"""A causal running mean, then an FFN."""

import torch

from lmu_scaling.models.architecture import Architecture, LayerKind, Row, register, register_kind

register_kind(
    LayerKind(
        name="mean",
        fields=(),
        parameters=lambda s: s.d,
        rows=lambda s: (Row("mean", "–", 0, "2d", 2 * s.d),),
        held=lambda s: s.d,
        builder=f"{__name__}:make",
    )
)
register(Architecture(name="running_mean", label="Running mean", blocks=2, sublayers=("mean", "ffn")))


def make(spec):
    from lmu_scaling.models.layers import Layer

    class Mean(Layer):
        def __init__(self):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.empty(spec.d))

        def initialise(self, generator):
            torch.nn.init.normal_(self.gain, generator=generator)

        def forward(self, x_bnd):
            count = torch.arange(1, x_bnd.shape[1] + 1)[:, None]
            return self.gain * x_bnd.cumsum(1) / count

        def initial_state(self, batch, device):
            return torch.zeros(batch, spec.d), 0

        def step(self, x_bd, state):
            total, count = state[0] + x_bd, state[1] + 1
            return self.gain * total / count, (total, count)

    return Mean()
'''

USE = """
import sys, torch

from lmu_scaling import models
sys.modules["lmu_scaling.models.variants"].__path__.append(sys.argv[1])
from lmu_scaling.counting import count
from lmu_scaling.models.network import build
assert "running_mean" in models.variants()
spec = models.resolve("running_mean", 64, 32, 40)
model = build(spec, seed=1)
own = sum(p.numel() for name, p in model.named_parameters() if name != "head_weight")
assert own == count(spec).n_exact and abs(own / (24 * 64**2) - 1) < 0.01
ids = torch.randint(0, 40, (2, 20))
state = model.initial_state(2)
with torch.no_grad():
    for t in range(20):
        logits, state = model.step(ids[:, t], state)
    torch.testing.assert_close(logits, model(ids)[:, -1], atol=1e-5, rtol=1e-4)
"""


def test_the_examples_of_the_method_page_hold():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "method.md"), module_relative=False)
    assert tried >= 6
    assert failed == 0


def test_a_variant_with_a_layer_of_its_own_is_one_new_file(tmp_path):
    (tmp_path / "running_mean.py").write_text(NEW_VARIANT)
    subprocess.run([sys.executable, "-c", USE, str(tmp_path)], cwd=ROOT, check=True)
