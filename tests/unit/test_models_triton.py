"""Triton's kernels without a GPU: by its interpreter, and compiled for three generations of GPUs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling.models.chunks import padded
from tests.needs import ROOT, needs

needs_triton = needs(importlib.util.find_spec("triton"), "Triton is not installed: it exists for Linux on x86-64")
# Compute capability, and the shared memory of a block [bytes]: A100, H100, RTX 50.
ARCHITECTURES = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024}
D, Q_REDUCED = 204, 25  # the paper's largest; smaller ones use fewer registers


@needs_triton
def test_every_kernel_equals_its_plain_form_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/interpreted"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


def kernels() -> dict[str, tuple[Any, dict[str, str], dict[str, int]]]:
    """Each kernel with the types of its arguments and its constants."""
    from lmu_scaling.models import triton_attention, triton_head

    sizes = dict.fromkeys(triton_attention.SIZES, "i32") | {"scale": "fp32"}
    attention = triton_attention.tiles(D, padded(D), Q_REDUCED).asdict()
    y, wide = "*bf16", "*fp32"
    back = {"y": y, "p": wide, "dm": wide, "dy": y, "dp": wide}
    operands = {"h": y, "weight": y, "log_sum": wide}
    head = triton_head.tiles(padded(D))
    counts = dict.fromkeys(triton_head.SIZES, "i32")
    return {
        "attend": (triton_attention.attend_kernel, {"y": y, "p": wide, "m": wide} | sizes, attention),
        "attend_back": (triton_attention.attend_back_kernel, back | sizes, attention),
        "head": (triton_head.head_kernel, operands | {"dh": wide} | counts, head),
        "head_back": (triton_head.head_back_kernel, operands | {"dweight": wide} | counts, head),
    }


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["attend", "attend_back", "head", "head_back"])
def test_a_kernel_compiles_to_tensor_core_code_without_spilled_registers(
    name: str, architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    function, types, constants = kernels()[name]
    options = {key: constants.pop(key) for key in ("num_warps", "num_stages")}
    pointers = [index for index, kind in enumerate(types.values()) if kind.startswith("*")]
    source = ASTSource(
        fn=function,
        signature=types | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
        attrs={(index,): [["tt.divisibility", 16]] for index in pointers},
    )
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin", dir=tmp_path) as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([tools / tool, *flags, file.name], capture_output=True, text=True, check=True).stdout
            for tool, flags in (("cuobjdump", ["-res-usage"]), ("nvdisasm", []))
        )
    assert re.search(r"STACK:0 ", usage), "registers are spilled"
    assert not re.search(r"\b(STL|LDL)\b", code), "registers are spilled"
    assert made.metadata.shared <= ARCHITECTURES[architecture]
    assert re.search(r"\b(HMMA|HGMMA)", code), "products do not run on tensor cores"
