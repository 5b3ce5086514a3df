"""The training loop (paper, section 5): Adam, warm-up and cosine, a batch that is a pure function of (seed, step).

Batch size, steps, learning rate and seed come from the spec and decide the result. Micro-batch, device, precision and
number of processes come from the machine; they change the loss by rounding only (and change dropout masks).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmu_scaling.counting import training_memory
from lmu_scaling.errors import Diverged, Interrupted, OutOfMemory, ResultsError, TokensError
from lmu_scaling.models.loss import linear_cross_entropy
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.runtime import duration
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.loader import Loader, Sampler
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.adam import Adam
from lmu_scaling.training.checkpoint import Checkpoints, State, pack, unpack
from lmu_scaling.training.compute import ComputeContext, out_of_memory
from lmu_scaling.training.monitor import Monitor
from lmu_scaling.training.schedule import Plateau, cosine

ROWS = 500  # rows of history a run keeps at most, besides validations
PATIENCE = 25  # a run has diverged after this many consecutive rows with a loss above MARGIN times the first one
MEMORY_SHARE = 0.85  # of the free memory that the first micro-batch may fill; the rest is work space and fragments
MARGIN = 1.01  # the loss on text that cannot be learned fluctuates by less


class Objective(nn.Module):
    """Mean loss of a batch."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs_bn: Tensor, targets_bn: Tensor) -> Tensor:
        h_bnd = self.model.hidden(inputs_bn)
        weight_vd, targets_t = self.model.head_weight, targets_bn.flatten()
        return linear_cross_entropy(h_bnd.flatten(0, 1), weight_vd, targets_t, self.model.compiled)


def _peak_rate(spec: RunSpec) -> float:
    if spec.training.learning_rate is None:
        raise ResultsError(
            "the learning rate has not been chosen", "spec.json", "run the workflow: it tunes the rate first"
        )
    return spec.training.learning_rate


class Trainer:
    """Trains one run from its first step, or its last checkpoint, to its last step."""

    def __init__(
        self,
        spec: RunSpec,
        train: TokenStore,
        validation: TokenStore,
        compute: ComputeContext,
        micro_batch: int = 0,
        compile: str = "auto",
    ) -> None:
        self.spec, self.settings, self.compute = spec, spec.training, compute
        self.context, self.steps = spec.model.context, spec.training.steps
        self.tokens_per_step = self.settings.batch * self.context
        self.learning_rate = _peak_rate(spec)
        self.local_batch = self.settings.batch // compute.world  # the sampler rejects a batch that is not divisible
        self.micro_batch = min(micro_batch or self.first_micro_batch(), self.local_batch)
        self.model = build(spec.model, seed=self.settings.seed, compile=compile)
        self.model.to(compute.device)
        self.objective = Objective(self.model)
        self.optimiser = Adam(self.model, self.settings.betas, self.settings.eps, self.settings.weight_decay)
        self.sampler = Sampler(
            train.windows(self.context), self.settings.batch, self.settings.seed, rank=compute.rank, world=compute.world
        )
        self.train, self.validation = train, validation
        if validation.windows(self.context) < 1:
            raise TokensError(
                f"the validation split has {len(validation)} tokens, fewer than one window of {self.context}",
                str(validation.directory),
                "use more text, a larger validation share, or a shorter context",
            )
        plateau = self.settings.plateau
        self.plateau = Plateau(**(dataclasses.asdict(plateau) if plateau else {}))
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.unrecorded: list[Tensor] = []
        self.waited = 0.0

    def first_micro_batch(self) -> int:
        """The whole batch, or on a GPU what the memory model says will fit on every process."""
        free = self.compute.free_memory()
        if free is None:
            return self.local_batch
        fitting = training_memory(self.spec.model, gpu=True).micro_batch(self.local_batch, MEMORY_SHARE * free)
        return self.compute.lowest(max(1, fitting))

    # ------------------------------------------------------------------------------------------------- training loop
    def run(
        self,
        monitor: Monitor,
        checkpoints: Checkpoints,
        checkpoint_seconds: float = 600.0,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.resume(checkpoints)
        self.rehearse(monitor)
        loader = Loader(self.train, self.sampler, self.context, self.step, self.steps, self.compute.device)
        clock = saved = time.monotonic()
        for inputs_bn, targets_bn in loader:
            self.advance(inputs_bn, targets_bn, monitor, checkpoints)
            now = time.monotonic()
            self.seconds, clock = self.seconds + now - clock, now
            self.waited = loader.wait_seconds
            monitor.advance(self)
            if self.any_process(interrupted()):
                self.save(checkpoints)
                raise Interrupted(
                    f"stopped by a signal at step {self.step:,} of {self.steps:,}; a checkpoint was written",
                    str(checkpoints.folder),
                    "run the same command again (a scheduler's retry does): the run resumes from here",
                )
            if self.any_process(now - saved > checkpoint_seconds) and self.step < self.steps:
                self.save(checkpoints)
                saved = time.monotonic()

    def advance(self, inputs_bn: Tensor, targets_bn: Tensor, monitor: Monitor, checkpoints: Checkpoints) -> None:
        """One optimiser step, then a row of history and a validation if they are due."""
        rate = self.learning_rate * cosine(self.step, self.steps, self.settings.warmup)
        rate *= self.plateau.multiplier
        loss = self.gradients(inputs_bn, targets_bn, monitor)
        if self.compute.device.type == "cpu" and not math.isfinite(loss.item()):
            self.diverge(self.step, checkpoints, good=True)  # before the update: the weights are still good
        norm = nn.utils.get_total_norm(self.optimiser.gradients())
        if self.settings.clip is not None:
            nn.utils.clip_grads_with_norm_(self.optimiser.parameters.values(), self.settings.clip, norm)
        self.optimiser.step(rate)
        self.step += 1
        self.unrecorded.append(loss)
        validate = self.step % self.settings.validate_every == 0 or self.step == self.steps
        if validate or self.step % math.ceil(self.steps / ROWS) == 0:
            self.record(rate, norm, self.validate() if validate else None, checkpoints)

    def gradients(self, inputs_bn: Tensor, targets_bn: Tensor, monitor: Monitor) -> Tensor:
        """Gradients of the mean loss over the whole batch; the micro-batch is halved when memory runs out.

        Processes exchange nothing until all of them have their gradients: one that ran out of memory would keep the
        others waiting. All of them halve if one of them has to.
        """
        while True:
            loss = self.attempt(inputs_bn, targets_bn)
            if not self.compute.agree(loss is None):
                break
            if self.micro_batch == 1:
                raise OutOfMemory(
                    f"out of memory with {self.micro_batch} sequence(s) of {self.context} tokens",
                    f"step {self.step}, {self.compute.device}",
                    "use a device with more memory, or a smaller model or context",
                )
            self.micro_batch = math.ceil(self.micro_batch / 2)
            torch.cuda.empty_cache()
            monitor.say(f"out of memory at step {self.step}: continuing with a micro-batch of {self.micro_batch}")
        assert loss is not None
        self.compute.average(self.optimiser.gradients())
        return self.compute.sum(loss) / self.compute.world

    def attempt(self, inputs_bn: Tensor, targets_bn: Tensor) -> Tensor | None:
        """Loss and gradients of this process's part of the batch; None if memory ran out."""
        self.optimiser.zero_grad()
        self.draw_masks()
        try:
            return self.accumulate(inputs_bn, targets_bn)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        self.optimiser.zero_grad()
        return None

    def draw_masks(self) -> None:
        """Seed dropout by (seed, step, rank), like the batch, so that a resumed run draws the same masks."""
        if self.model.spec.dropout:
            numbers = np.random.SeedSequence([self.settings.seed, self.step, self.compute.rank])
            torch.manual_seed(int(numbers.generate_state(1, np.uint64)[0]))

    def accumulate(self, inputs_bn: Tensor, targets_bn: Tensor) -> Tensor:
        total = torch.zeros((), device=self.compute.device)
        for start in range(0, len(inputs_bn), self.micro_batch):
            part = slice(start, start + self.micro_batch)
            with self.compute.autocast():
                loss = self.objective(inputs_bn[part], targets_bn[part]) * (len(inputs_bn[part]) / len(inputs_bn))
            loss.backward()  # outside autocast, which would round gradients of float32 operations
            total += loss.detach()
        return total

    def rehearse(self, monitor: Monitor) -> None:
        """Two forward and backward passes without an update, so that shape and memory errors appear within seconds."""
        rows = torch.from_numpy(self.train.gather(self.sampler.batch(self.step), self.context)).to(self.compute.device)
        for _ in range(2):
            self.gradients(rows[:, :-1], rows[:, 1:], monitor)
        self.optimiser.zero_grad()

    # ------------------------------------------------------------------------------------------ validation, history
    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss on evenly spaced validation sequences, the same ones at every call, shared by the processes."""
        windows = self.validation.windows(self.context)
        count = min(self.settings.validation_sequences, windows)
        chosen = (np.arange(count) * windows // count)[self.compute.rank :: self.compute.world]
        total = torch.zeros((), dtype=torch.float64, device=self.compute.device)
        self.model.eval()  # without dropout
        for start in range(0, len(chosen), self.micro_batch):
            part = chosen[start : start + self.micro_batch]
            rows = torch.from_numpy(self.validation.gather(part, self.context)).to(self.compute.device)
            with self.compute.autocast():
                loss = Objective.forward(self.objective, rows[:, :-1], rows[:, 1:])
            total += loss.double() * len(part)
        self.model.train()
        return float(self.compute.sum(total)) / count

    def record(self, rate: float, norm: Tensor, validation: float | None, checkpoints: Checkpoints) -> None:
        losses = torch.stack(self.unrecorded).double().cpu()
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            self.diverge(self.step - len(losses) + int(bad[0]), checkpoints, good=False)
        if validation is not None and not math.isfinite(validation):  # the last update shows up here first
            self.diverge(self.step - 1, checkpoints, good=False)
        self.unrecorded = []
        self.history.append(
            {
                "step": self.step,
                "tokens": self.step * self.tokens_per_step,
                "loss": losses.mean().item(),
                "learning_rate": rate,
                "grad_norm": float(norm) if norm.isfinite() else None,  # it may overflow
                "validation_loss": validation,
            }
        )
        if validation is not None:
            self.plateau.update(validation)
        recent = self.history[-PATIENCE:]
        if len(self.history) > PATIENCE and all(row["loss"] > MARGIN * self.history[0]["loss"] for row in recent):
            self.diverge(self.step, checkpoints, good=False)

    def diverge(self, step: int, checkpoints: Checkpoints, good: bool) -> None:
        if good and self.step:
            self.save(checkpoints)
        kept = checkpoints.found()
        raise Diverged(
            f"the loss became NaN or stayed above its initial value: step {step:,} of {self.steps:,}, "
            f"training windows {self.sampler.batch(step)[:8].tolist()} …",
            f"last good state: {kept[-1] if kept else 'the initial weights'}",
            "lower the learning rate, use recipe `tuned`, or clip gradients",
        )

    # ------------------------------------------------------------------------------------------- checkpoints
    def any_process(self, value: bool) -> bool:
        """Whether `value` is true on any process. Several processes synchronise only every tenth step."""
        if self.compute.world == 1:
            return value
        return self.step % 10 == 0 and self.compute.agree(value)

    def save(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint; weights that are NaN or infinite are never written."""
        if not all(torch.isfinite(parameter).all() for parameter in self.model.parameters()):
            self.diverge(self.step, checkpoints, good=False)
        if not self.compute.main:
            return
        losses = [loss.item() for loss in self.unrecorded]
        meta = {"history": self.history, "unrecorded": losses, "plateau": self.plateau.state(), "seconds": self.seconds}
        checkpoints.save(State(self.step, pack(self.model, self.optimiser), meta))

    def resume(self, checkpoints: Checkpoints) -> None:
        state = checkpoints.latest()
        if state is None:
            return
        unpack(state.tensors, state.step, self.model, self.optimiser)
        self.step, self.seconds, self.history = state.step, state.meta["seconds"], state.meta["history"]
        self.unrecorded = [torch.tensor(loss, device=self.compute.device) for loss in state.meta["unrecorded"]]
        self.plateau.restore(state.meta["plateau"])
        if self.compute.main:
            print(f"resuming at step {self.step:,} of {self.steps:,} after {duration(self.seconds)}", flush=True)
