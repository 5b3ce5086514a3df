"""Checkpoints that survive a kill at any moment: written to a scratch folder, fsynced, renamed; the last two are kept.

A checkpoint is a folder `step-<n>` with `state.safetensors` (weights and Adam's moments) and a readable `meta.json`
with the run's identity and the sha256 of the state, protected by a hash of its own. Checkpoints are not declared as
outputs, because Snakemake deletes the outputs of a restarted job.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from lmu_scaling.errors import CheckpointError, ResultsError
from lmu_scaling.manifests import read_sealed, write_sealed
from lmu_scaling.runtime import atomic_write, disk_full_is_explained, sha256_bytes
from lmu_scaling.training.adam import Adam

KEEP = 2


@dataclass
class State:
    """Everything needed to resume a run: tensors by name, and JSON for the rest."""

    step: int
    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, in one folder, for one identity (spec, tokens and code)."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity

    def save(self, state: State) -> None:
        """Write one checkpoint and drop all but the last two."""
        final = self.folder / f"step-{state.step:09d}"
        scratch = self.folder / f".partial-{os.getpid()}"
        with disk_full_is_explained(final):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            try:
                data = save(state.tensors)
                with atomic_write(scratch / "state.safetensors", "wb") as file:
                    file.write(data)
                meta = {"identity": self.identity, "step": state.step, "sha256": sha256_bytes(data), **state.meta}
                write_sealed(scratch / "meta.json", meta)
                if final.exists():
                    shutil.rmtree(final)
                os.replace(scratch, final)
                _fsync_folder(self.folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        for old in self.found()[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)

    def latest(self) -> State | None:
        """The newest intact checkpoint; a damaged one is reported and the previous one is used."""
        for folder in reversed(self.found()):
            try:
                return self._read(folder)
            except (SafetensorError, ResultsError, OSError, KeyError, ValueError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                print(f"checkpoint {folder.name} is damaged ({reason}); trying the previous one", file=sys.stderr)
        return None

    def _read(self, folder: Path) -> State:
        meta = read_sealed(folder / "meta.json")
        if meta["identity"] != self.identity:
            raise CheckpointError(
                f"this checkpoint belongs to another run (identity {meta['identity']}, expected {self.identity})",
                str(folder),
                "delete or move the folder; a run only resumes from checkpoints of the same spec, tokens and code",
            )
        data = (folder / "state.safetensors").read_bytes()
        if sha256_bytes(data) != meta["sha256"]:
            raise ValueError("its checksum does not match")
        return State(meta["step"], load(data), meta)

    def found(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def pack(model: nn.Module, optimiser: Adam) -> dict[str, Tensor]:
    """Weights and Adam's moments under readable names."""
    tensors: dict[str, Tensor] = {f"weights.{name}": parameter for name, parameter in model.named_parameters()}
    tensors |= {f"adam.{name}": moment for name, moment in optimiser.tensors().items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def unpack(tensors: dict[str, Tensor], step: int, model: nn.Module, optimiser: Adam) -> None:
    """The inverse of `pack`, onto the devices the model and the optimiser live on."""
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[f"weights.{name}"])
    moments = {name.removeprefix("adam."): moment for name, moment in tensors.items() if name.startswith("adam.")}
    optimiser.restore(moments, step)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
