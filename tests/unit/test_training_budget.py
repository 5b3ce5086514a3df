"""One training step on a GPU, counted without one: bytes, launches and host synchronisations stay within a budget.

The numbers are kilobytes per token, forwards and backwards, at n = 1024 with 128 sequences. The FFT form moved 7,441 in
the body of the LMU at d = 204 and 479 at d = 48; the head, in chunks, 1,571. Not counted: cuDNN's LSTM.
"""

from __future__ import annotations

import importlib.util

import pytest

from lmu_scaling.counting import gpu_work, training_memory
from lmu_scaling.models import native, resolve
from tests import meta
from tests.needs import needs

pytestmark = [
    needs(importlib.util.find_spec("triton"), "Triton is not installed: it exists for Linux on x86-64"),
    needs(native.kernels(), "no C compiler on this machine"),
]
SEQUENCES = 128  # the smallest micro-batch of the paper's models on 40 GB
BODY = {
    ("lmu", 48): 85,
    ("lmu", 204): 800,
    ("lmu_attention", 48): 105,
    ("lmu_attention", 204): 900,
    ("transformer", 48): 40,
    ("transformer", 204): 165,
}
HEAD = 620
LAUNCHES, BATCH = 2000, 512  # per optimiser step of the paper's batch


def kilobytes_per_token(count: meta.Count) -> float:
    return sum(count.bytes.values()) / (SEQUENCES * 1024) / 1e3


@pytest.mark.parametrize(("variant", "d"), BODY)
def test_a_step_stays_within_its_budget(variant: str, d: int) -> None:
    step = meta.micro_batch(meta.model(variant, d), SEQUENCES)
    assert kilobytes_per_token(step.body) <= BODY[variant, d]
    assert kilobytes_per_token(step.head) <= HEAD
    assert step.body.synchronisations == step.head.synchronisations == 0
    assert step.head.launches["head"] == 1, "the kernel that writes no logits"
    once = sum(meta.optimiser_step(meta.model(variant, d)).launches.values())
    each = sum(step.body.launches.values()) + sum(step.head.launches.values())
    assert BATCH // SEQUENCES * each + once <= LAUNCHES


@pytest.mark.parametrize(("variant", "d"), BODY)
def test_the_plan_knows_the_bytes_that_a_step_moves_and_holds(variant: str, d: int) -> None:
    net = meta.model(variant, d)
    step, work, memory = meta.micro_batch(net, SEQUENCES), gpu_work(net.spec), training_memory(net.spec, gpu=True)
    counted = 1e3 * (kilobytes_per_token(step.body) + kilobytes_per_token(step.head))
    assert work.bytes == pytest.approx(counted, rel=0.15)
    held = step.held / SEQUENCES
    assert held <= memory.sequence <= 1.6 * held


def test_the_papers_batch_takes_few_micro_batches_on_40_gigabytes() -> None:
    for variant, d in BODY:
        memory = training_memory(resolve(variant, d, 1024, 50257), gpu=True)
        assert memory.micro_batch(BATCH, 0.85 * 40e9) >= SEQUENCES


def test_the_counter_sees_logits_that_are_written_and_hosts_that_wait() -> None:
    import torch

    count = meta.Count()
    with count:
        logits = torch.empty(1000, 8, device="meta") @ torch.empty(8, 500, device="meta")
        logits.exp()
        torch.ones(3).sum().item()
    assert sum(count.bytes.values()) >= 3 * 1000 * 500 * 4
    assert count.synchronisations == 1
