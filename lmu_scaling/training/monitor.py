"""Monitoring a run: a progress line with loss, speed and ETA, a live JSONL log, and the trackers that were chosen."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmu_scaling.runtime import Progress, disk_full_is_explained, si
from lmu_scaling.training.trackers import Trackers

if TYPE_CHECKING:
    from lmu_scaling.training.loop import Trainer

AFFECTS_RESULTS = False
NOTE_SECONDS = 0.5  # between updates of the progress note and of the live log


class Monitor:
    """Everything a person sees of a run while it trains. Only the main process reports."""

    def __init__(
        self,
        folder: Path,
        label: str,
        tokens: int,
        flops_per_token: float,
        peak: float,
        main: bool,
        trackers: Trackers | None = None,
    ) -> None:
        self.flops_per_token, self.peak, self.main = flops_per_token, peak, main
        self.seen, self.next_note = 0, 0.0
        self.unwritten: list[dict[str, Any]] = []  # rows of history for the live log
        if not main:
            return
        self.bar = Progress(tokens, label, "tokens")
        with disk_full_is_explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.live = open(folder / "progress.jsonl", "a", encoding="utf-8")
        self.folder, self.trackers = folder, trackers

    def advance(self, run: Trainer) -> None:
        if not self.main:
            return
        tokens = run.tokens_per_step
        if self.bar.done == 0:
            self.bar.done = (run.step - 1) * tokens  # what an earlier job had done
            self.bar.already = self.bar.done
        if len(run.history) > self.seen:
            row = run.history[-1]
            self.unwritten.append({**row, "time": round(time.time(), 3)})
            if self.trackers is not None:
                self.trackers.log(row)
        self.seen = len(run.history)
        due = time.monotonic() >= self.next_note  # formatting and writing cost more than a small model's bookkeeping
        self.bar.update(tokens, self.note(run) if due else "")
        if due:
            self.next_note = time.monotonic() + NOTE_SECONDS
            self.write()

    def write(self) -> None:
        with disk_full_is_explained(self.folder):
            self.live.write("".join(json.dumps(row) + "\n" for row in self.unwritten))
            self.live.flush()
        self.unwritten.clear()

    def note(self, run: Trainer) -> str:
        if not run.history:
            return ""
        row = run.history[-1]
        speed = run.step * run.tokens_per_step / max(run.seconds, 1e-9)
        parts = [f"loss {row['loss']:.3f}"]
        validated = next(
            (r["validation_loss"] for r in reversed(run.history) if r["validation_loss"] is not None), None
        )
        if validated is not None:
            parts.append(f"validation {validated:.3f}")
        parts.append(f"{si(speed)} tokens/s, {self.utilisation(speed):.0%} of matmul peak, wait {self.wait(run):.1%}")
        return ", ".join(parts)

    def utilisation(self, tokens_per_second: float) -> float:
        """Training FLOP/s as a share of a plain matrix product on this device."""
        return tokens_per_second * self.flops_per_token / self.peak

    def wait(self, run: Trainer) -> float:
        return run.waited / max(run.seconds, 1e-9)

    def say(self, text: str) -> None:
        if self.main:
            print(text, flush=True)

    def close(self) -> None:
        if self.main:
            self.bar.close()
            self.write()
            self.live.close()
            if self.trackers is not None:
                self.trackers.close()
