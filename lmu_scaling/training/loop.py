"""The training loop (paper, section 5): Adam, warm-up and cosine, a batch that is a pure function of (seed, step).

Batch, steps, rates and seed come from the spec and decide the result. Micro-batch, device, precision and number of
processes come from the machine; the loss does not depend on them beyond rounding (and the masks of dropout).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmu_scaling.errors import Diverged, Interrupted, OutOfMemory, TokensError
from lmu_scaling.models import ModelSpec
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.runtime import duration
from lmu_scaling.tokens.loader import Loader, Sampler
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.training.adam import Adam
from lmu_scaling.training.checkpoint import Checkpoints, State, pack, unpack
from lmu_scaling.training.device import Place, out_of_memory
from lmu_scaling.training.loss import linear_cross_entropy
from lmu_scaling.training.schedule import Plateau, cosine
from lmu_scaling.training.watch import Watch

ROWS = 500  # rows of history a run keeps at most, besides validations
PATIENCE = 25  # rows in a row with a loss above the first one's before a run counts as diverged …
MARGIN = 1.01  # … by more than text that cannot be learned makes it wander


class Objective(nn.Module):
    """Mean loss of a batch: what is differentiated, and what several processes share."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs_bn: Tensor, targets_bn: Tensor) -> Tensor:
        h_bnd = self.model.hidden(inputs_bn)
        weight_vd, targets_t = self.model.head_weight, targets_bn.flatten()
        return linear_cross_entropy(h_bnd.flatten(0, 1), weight_vd, targets_t, self.model.compiled)


class Trainer:
    """One run, from its first step or its last checkpoint to its last step."""

    def __init__(
        self, spec: dict[str, Any], train: TokenStore, validation: TokenStore, place: Place, **how: Any
    ) -> None:
        self.spec, self.rules, self.place = spec, spec["training"], place
        self.context: int = spec["model"]["context"]
        self.steps: int = self.rules["steps"]
        self.local_batch = self.rules["batch"] // place.world  # the sampler refuses a batch that cannot be shared
        self.micro_batch = min(how.get("micro_batch") or self.local_batch, self.local_batch)
        self.model = build(
            ModelSpec.from_dict(spec["model"]), seed=self.rules["seed"], compile=how.get("compile", "auto")
        )
        self.model.to(place.device)
        self.objective = place.wrap(Objective(self.model))
        self.optimiser = Adam(self.model, self.rules["betas"], self.rules["eps"], self.rules["weight_decay"])
        self.sampler = Sampler(
            train.windows(self.context), self.rules["batch"], self.rules["seed"], rank=place.rank, world=place.world
        )
        self.train, self.validation = train, validation
        if validation.windows(self.context) < 1:
            raise TokensError(
                f"the validation split has {len(validation)} tokens, fewer than one window of {self.context} needs",
                str(validation.directory),
                "use more text, a larger share of it for validation, or a shorter context",
            )
        self.plateau = Plateau(**(self.rules["plateau"] or {}))
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.unrecorded: list[Tensor] = []
        self.waited = 0.0

    # ------------------------------------------------------------------------------------------------------- a run
    def run(
        self,
        watch: Watch,
        checkpoints: Checkpoints,
        checkpoint_seconds: float = 600.0,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.resume(checkpoints)
        self.rehearse(watch)
        loader = Loader(self.train, self.sampler, self.context, self.step, self.steps, self.place.device)
        clock = saved = time.monotonic()
        for inputs_bn, targets_bn in loader:
            self.advance(inputs_bn, targets_bn, watch, checkpoints)
            now = time.monotonic()
            self.seconds, clock = self.seconds + now - clock, now
            self.waited = loader.wait_seconds
            watch.advance(self)
            if self.asks(interrupted()):
                self.save(checkpoints)
                raise Interrupted(
                    f"stopped by a signal at step {self.step:,} of {self.steps:,}; a checkpoint was written",
                    str(checkpoints.folder),
                    "run the same command again (a scheduler's retry does): the run goes on from here",
                )
            if self.asks(now - saved > checkpoint_seconds) and self.step < self.steps:
                self.save(checkpoints)
                saved = time.monotonic()

    def advance(self, inputs_bn: Tensor, targets_bn: Tensor, watch: Watch, checkpoints: Checkpoints) -> None:
        """One optimiser step, with whatever is due after it: a row of history, a validation."""
        rate = self.rules["learning_rate"] * cosine(self.step, self.steps, self.rules["warmup"])
        rate *= self.plateau.multiplier
        loss = self.gradients(inputs_bn, targets_bn, watch)
        if self.place.device.type == "cpu" and not math.isfinite(loss.item()):
            self.diverge(self.step, checkpoints, good=True)  # the step was not taken: the weights are still good
        norm = nn.utils.get_total_norm(self.optimiser.gradients())
        if self.rules["clip"] is not None:
            nn.utils.clip_grads_with_norm_(self.optimiser.parameters.values(), self.rules["clip"], norm)
        self.optimiser.step(rate)
        self.step += 1
        self.unrecorded.append(loss)
        validate = self.step % self.rules["validate_every"] == 0 or self.step == self.steps
        if validate or self.step % math.ceil(self.steps / ROWS) == 0:
            self.record(rate, norm, self.validate() if validate else None, checkpoints)

    def gradients(self, inputs_bn: Tensor, targets_bn: Tensor, watch: Watch) -> Tensor:
        """Gradients of the mean loss over the whole batch; halves the micro-batch when memory runs out."""
        while True:
            self.optimiser.zero_grad()
            self.draw_masks()
            try:
                return self.place.mean(self.accumulate(inputs_bn, targets_bn))
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                if self.micro_batch == 1 or self.place.world > 1:
                    raise OutOfMemory(
                        f"out of memory with {self.micro_batch} sequence(s) of {self.context} tokens",
                        f"step {self.step}, {self.place.device}",
                        "use a device with more memory, more processes, or a smaller micro-batch",
                    ) from error
            self.micro_batch = math.ceil(self.micro_batch / 2)
            torch.cuda.empty_cache()
            watch.say(f"out of memory at step {self.step}: going on with a micro-batch of {self.micro_batch}")

    def draw_masks(self) -> None:
        """Dropout is a function of seed, step and process, like the batch: a resumed run draws what it would have."""
        if self.model.spec.dropout:
            numbers = np.random.SeedSequence([self.rules["seed"], self.step, self.place.rank])
            torch.manual_seed(int(numbers.generate_state(1, np.uint64)[0]))

    def accumulate(self, inputs_bn: Tensor, targets_bn: Tensor) -> Tensor:
        total = torch.zeros((), device=self.place.device)
        for start in range(0, len(inputs_bn), self.micro_batch):
            part = slice(start, start + self.micro_batch)
            last = start + self.micro_batch >= len(inputs_bn)
            quiet = contextlib.nullcontext() if last or self.place.world == 1 else self.objective.no_sync()  # type: ignore[operator]
            with quiet:
                with self.place.autocast():
                    loss = self.objective(inputs_bn[part], targets_bn[part]) * (len(inputs_bn[part]) / len(inputs_bn))
                loss.backward()  # outside: autocast would round the gradients of what was computed in float32
            total += loss.detach()
        return total

    def rehearse(self, watch: Watch) -> None:
        """Two forward and backward passes that change nothing: shape errors and lack of memory come in seconds."""
        rows = torch.from_numpy(self.train.gather(self.sampler.batch(self.step), self.context)).to(self.place.device)
        for _ in range(2):
            self.gradients(rows[:, :-1], rows[:, 1:], watch)
        self.optimiser.zero_grad()

    # ------------------------------------------------------------------------------------- what is known about a run
    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss on evenly spaced validation sequences, the same ones at every call."""
        windows = self.validation.windows(self.context)
        count = min(self.rules["validation_sequences"], windows)
        chosen = np.arange(count) * windows // count
        total = 0.0
        self.model.eval()  # without dropout
        for start in range(0, count, self.micro_batch):
            part = chosen[start : start + self.micro_batch]
            rows = torch.from_numpy(self.validation.gather(part, self.context)).to(self.place.device)
            with self.place.autocast():
                loss = Objective.forward(self.objective_module(), rows[:, :-1], rows[:, 1:])
            total += loss.item() * len(part)
        self.model.train()
        return float(self.place.mean(torch.tensor(total / count, dtype=torch.float64, device=self.place.device)))

    def objective_module(self) -> Objective:
        return self.objective.module if self.place.world > 1 else self.objective  # type: ignore[return-value]

    def record(self, rate: float, norm: Tensor, validation: float | None, checkpoints: Checkpoints) -> None:
        losses = torch.stack(self.unrecorded).double().cpu()
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            self.diverge(self.step - len(losses) + int(bad[0]), checkpoints, good=False)
        if validation is not None and not math.isfinite(validation):  # what the last step did shows here first
            self.diverge(self.step - 1, checkpoints, good=False)
        self.unrecorded = []
        self.history.append(
            {
                "step": self.step,
                "tokens": self.step * self.rules["batch"] * self.context,
                "loss": losses.mean().item(),
                "learning_rate": rate,
                "grad_norm": float(norm) if norm.isfinite() else None,  # its squares may overflow where it does not
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
            f"the loss became NaN or stayed above its start: step {step:,} of {self.steps:,}, "
            f"training windows {self.sampler.batch(step)[:8].tolist()} …",
            f"last good state: {kept[-1] if kept else 'the initial weights'}",
            "lower the learning rate, use recipe `tuned`, or clip gradients",
        )

    # --------------------------------------------------------------------------------------------- stop and resume
    def asks(self, wish: bool) -> bool:
        """Whether any process wishes it. Several processes compare notes only every tenth step."""
        if self.place.world == 1:
            return wish
        return self.step % 10 == 0 and self.place.agree(wish)

    def save(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint, which is always a state one can go on from: never weights that are NaN or infinite."""
        if not all(torch.isfinite(parameter).all() for parameter in self.model.parameters()):
            self.diverge(self.step, checkpoints, good=False)
        if not self.place.main:
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
        self.unrecorded = [torch.tensor(loss, device=self.place.device) for loss in state.meta["unrecorded"]]
        self.plateau.restore(state.meta["plateau"])
        if self.place.main:
            print(f"resuming at step {self.step:,} of {self.steps:,} after {duration(self.seconds)}", flush=True)
