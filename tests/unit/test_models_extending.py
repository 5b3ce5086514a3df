"""docs/method.md: its examples hold, and a layer, or a variant with a layer of its own, is one new file."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

NEW_VARIANT = '''
"""A causal running mean, then an FFN."""

from lmu_scaling.models.architecture import Architecture, LayerDescription, Row, register, register_layer

register_layer(
    LayerDescription(
        name="mean",
        fields=(),
        parameters=lambda spec: spec.d,
        rows=lambda spec: (Row("Mean", "–", 0, "d", spec.d),),
        activations=lambda spec: spec.d,
        builder=f"{__name__}:Mean",
    )
)
register(Architecture(name="running_mean", label="Running mean", blocks=2, sublayers=("mean", "ffn")))

import torch

from lmu_scaling.models.layer import Layer


class Mean(Layer):
    def __init__(self, spec):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.empty(spec.d))

    def initialise(self, generator):
        torch.nn.init.normal_(self.gain, generator=generator)

    def forward(self, x_bnd):
        count = torch.arange(1, x_bnd.shape[1] + 1)[:, None]
        return self.gain * x_bnd.cumsum(1) / count

    def initial_state(self, batch, device):
        return self.gain.new_zeros(batch, len(self.gain)), 0

    def step(self, x_bd, state):
        total, count = state[0] + x_bd, state[1] + 1
        return self.gain * total / count, (total, count)
'''

USE = """
import json, sys
from pathlib import Path

from lmu_scaling import models
sys.modules["lmu_scaling.models.variants"].__path__.append(sys.argv[1])
from lmu_scaling.counting import count
assert "running_mean" in models.variants()
spec = models.resolve("running_mean", 64, 32, 40)
assert count(spec).n_exact and "torch" not in sys.modules, "counting needs no torch"

import pandas as pd
import torch
from lmu_scaling.analysis.counts import counts
from lmu_scaling.models.network import build
model = build(spec, seed=1)
own = sum(p.numel() for name, p in model.named_parameters() if name != "head_weight")
assert own == count(spec).n_exact and abs(own / (24 * 64**2) - 1) < 0.01
ids = torch.randint(0, 40, (2, 20))
state = model.initial_state(2)
with torch.no_grad():
    for t in range(20):
        logits, state = model.step(ids[:, t], state)
    torch.testing.assert_close(logits, model(ids)[:, -1], atol=1e-5, rtol=1e-4)

folder = Path(sys.argv[1])
counts({"running_mean-s": spec}, folder / "counts.csv", folder / "table2.csv")
rows = pd.read_csv(folder / "table2.csv")
assert list(rows["operation"]) == ["Mean", "FFN"]
assert (rows["flops"] == rows["flops_measured"]).all() and (rows["parameters"] == rows["parameters_measured"]).all()
"""

DISCOVER = """
import sys
from lmu_scaling import models
sys.modules["lmu_scaling.models." + sys.argv[1]].__path__.append(sys.argv[2])
models.variants()
"""


def discover(kind, folder, name, source):
    (folder / f"{name}.py").write_text(source)
    command = [sys.executable, "-c", DISCOVER, kind, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_examples_of_the_method_page_hold():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "method.md"), module_relative=False)
    assert tried >= 6
    assert failed == 0


def test_a_variant_with_a_layer_of_its_own_is_one_new_file(tmp_path):
    (tmp_path / "running_mean.py").write_text(NEW_VARIANT)
    subprocess.run([sys.executable, "-c", USE, str(tmp_path)], cwd=ROOT, check=True)


def test_a_layer_is_discovered_by_its_file(tmp_path):
    layer = NEW_VARIANT.replace("register(Architecture", "dict(variant=Architecture")
    assert discover("layers", tmp_path, "mean", layer).returncode == 0


def test_a_layer_that_is_registered_below_the_import_of_torch_is_refused(tmp_path):
    done = discover("layers", tmp_path, "mean", "import torch\n" + NEW_VARIANT)
    assert "registers no layer before its first import of torch" in done.stderr
    assert f"{tmp_path}/mean.py" in done.stderr


@pytest.mark.parametrize(
    ("name", "source"),
    [("mean", NEW_VARIANT), ("running_mean", "import torch\n" + NEW_VARIANT)],
    ids=["another name", "below torch"],
)
def test_a_variant_that_is_not_called_like_its_file_is_refused(tmp_path, name, source):
    done = discover("variants", tmp_path, name, source)
    assert f"must register one variant, called '{name}'" in done.stderr
    assert f"{tmp_path}/{name}.py" in done.stderr
