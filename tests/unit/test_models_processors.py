"""Whole models on lesser processors: without AVX-512, or without compiled kernels, as a variable forces them to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lmu_scaling.models import native
from tests.needs import ROOT, needs

pytestmark = needs(native.kernels(), "no C compiler on this machine")

GRADIENTS = """
import json
import torch
from lmu_scaling.models import native, resolve, variants
from lmu_scaling.models.network import build
from lmu_scaling.training.loop import Objective

ids = torch.randint(300, (3, 65), generator=torch.Generator().manual_seed(0))
found = {"lanes": native.library().lmu_lanes() if native.kernels() else 0}
for variant in variants():
    model = build(resolve(variant, 24, 64, 300), seed=1)
    loss = Objective(model)(ids[:, :-1], ids[:, 1:])
    loss.backward()
    found[variant] = [loss.item(), torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()]
print(json.dumps(found))
"""


def gradients(switch: str) -> dict[str, list[float] | int]:
    environment = os.environ | {"LMU_SCALING_NATIVE": switch, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GRADIENTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_losses_and_gradients_of_all_variants_are_those_of_lesser_processors() -> None:
    found = {switch: gradients(switch) for switch in ("", "portable", "0")}
    assert found["portable"].pop("lanes") == 8
    assert found["0"].pop("lanes") == 0
    assert found[""].pop("lanes") == (16 if native.vectors() else 8)
    for variant, values in found["0"].items():
        assert found["portable"][variant] == pytest.approx(values, rel=1e-5), variant
        assert found[""][variant] == pytest.approx(values, rel=1e-5), variant
