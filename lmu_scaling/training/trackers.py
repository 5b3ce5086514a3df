"""Optional sinks for the rows of a run's live log: TensorBoard, trackio, Weights & Biases.

They are chosen in the profile (`set-resources: train: trackers: tensorboard,wandb`) and installed by the extra
`tracking`. Nothing leaves the machine unless the user asks for it: wandb works offline without a key or WANDB_MODE. A
sink that fails is reported once and left out; training goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from lmu_scaling.errors import ConfigError, MissingPackage

AFFECTS_RESULTS = False
PROJECT = "lmu-scaling"


class Tracker(Protocol):
    """A sink: numbers by name at a step."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in live/tensorboard: `tensorboard --logdir results/<experiment>/training`."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        import tensorboard  # noqa: F401  # torch's own message does not say which package is missing
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder / "tensorboard")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class Trackio:
    """A local database (TRACKIO_DIR, by default in the home folder): `trackio show --project lmu-scaling`."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        import trackio

        self.trackio = trackio
        trackio.init(project=PROJECT, name=run, config=dict(config), resume="allow")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.trackio.log(dict(values), step=step)

    def close(self) -> None:
        self.trackio.finish()


class WandB:
    """Weights & Biases, in live/wandb; `wandb sync` uploads what was recorded offline."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        import wandb

        online = os.environ.get("WANDB_API_KEY")
        self.run = wandb.init(
            project=PROJECT,
            name=run,
            id=run,
            resume="allow",
            dir=folder,
            config=dict(config),
            mode=None if os.environ.get("WANDB_MODE") or online else "offline",
            settings=wandb.Settings(disable_code=True, disable_git=True, console="off", silent=True),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


SINKS: dict[str, Callable[..., Tracker]] = {"tensorboard": TensorBoard, "trackio": Trackio, "wandb": WandB}


class Trackers:
    """All sinks that were chosen, as one. Failures after the start disable a sink, not the run."""

    def __init__(self, names: str, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        wanted = [name.strip() for name in names.split(",") if name.strip() not in ("", "none")]
        if unknown := [name for name in wanted if name not in SINKS]:
            raise ConfigError(
                f"unknown tracker {unknown[0]!r}", "trackers of the rule train", f"choose from none, {', '.join(SINKS)}"
            )
        self.sinks: dict[str, Tracker] = {}
        for name in wanted:
            try:
                self.sinks[name] = SINKS[name](folder, run, config)
            except ModuleNotFoundError as error:
                raise MissingPackage(
                    f"the package {error.name} is not installed",
                    f"trackers: {names}, in the profile",
                    "pip install '.[tracking]', or choose trackers: none",
                ) from error
            except Exception as error:
                self._give_up(name, error)

    def log(self, row: Mapping[str, Any]) -> None:
        values = {key: float(value) for key, value in row.items() if key != "step" and value is not None}
        for name, sink in list(self.sinks.items()):
            try:
                sink.log(int(row["step"]), values)
            except Exception as error:
                self._give_up(name, error)

    def close(self) -> None:
        for name, sink in list(self.sinks.items()):
            try:
                sink.close()
            except Exception as error:
                self._give_up(name, error)

    def _give_up(self, name: str, error: Exception) -> None:
        self.sinks.pop(name, None)
        print(
            f"note: {name} is left out, training goes on: {type(error).__name__}: {error}", file=sys.stderr, flush=True
        )
