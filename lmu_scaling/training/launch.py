"""Start a job on its GPUs: claim free devices of this machine and start one process for each.

    python -m lmu_scaling.training.launch <GPUs> <job> …

With 0 GPUs this is `python -m lmu_scaling <job> …`. Snakemake counts GPUs but does not assign them, so a job claims its
devices by file locks, which end with it. Inside a SLURM job only the devices of its allocation are claimed.
Torch is not imported here: CUDA reads CUDA_VISIBLE_DEVICES once, so it must be set before.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmu_scaling import cli
from lmu_scaling.errors import UserError
from lmu_scaling.runtime import sha256_bytes

AFFECTS_RESULTS = False
_held: list[int] = []  # descriptors of claimed devices: open for as long as the process lives


class TooFewGPUs(UserError):
    """A job asks for more GPUs than it can see."""


def main(argv: Sequence[str]) -> int:
    count, command = int(argv[0]), list(argv[1:])
    try:
        if count and (devices := visible(os.environ, installed())):
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(claim(devices, count, locks(os.environ)))
            command = on_gpu(command)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if count <= 1:
        return cli.main(command)
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m", "lmu_scaling"]
    os.execv(sys.executable, [sys.executable, *torchrun, *command])


def on_gpu(command: Sequence[str]) -> list[str]:
    """Replace `--device auto` by `--device cuda`, so that a claimed GPU that torch does not see is an error."""
    before = ("", *command)
    return [
        "cuda" if (flag, word) == ("--device", "auto") else word for flag, word in zip(before, command, strict=False)
    ]


def installed() -> list[str]:
    """The UUID of every NVIDIA GPU of this machine; none where the driver's tool is missing or sees none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def visible(environment: Mapping[str, str], found: Sequence[str]) -> list[str]:
    """The devices this job may use: CUDA_VISIBLE_DEVICES if it is set, else all that were found."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return list(found)
    return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]


def locks(environment: Mapping[str, str]) -> Path:
    """Folder of the locks: per user and machine, or per allocation inside a SLURM job."""
    scope = environment.get("SLURM_JOB_ID", "machine")
    return Path(tempfile.gettempdir()) / f"lmu-scaling-gpus-{os.getuid()}" / scope


def claim(devices: Sequence[str], count: int, folder: Path, wait: bool = True, every: float = 1.0) -> list[str]:
    """Lock `count` of these devices until this process ends; wait while too few are free.

    All or none, to avoid a deadlock between two jobs that each hold a part.
    """
    if count > len(devices):
        raise TooFewGPUs(
            f"this job asks for {count} GPUs and sees {len(devices)}",
            f"visible devices: {', '.join(devices) or 'none'}",
            "lower the rule's resource `gpu`, or widen CUDA_VISIBLE_DEVICES",
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    said = False
    while True:
        taken = _take(devices, count, folder)
        if taken or not wait:
            return taken
        if not said:
            print(f"waiting for {count} of the GPUs {', '.join(devices)}", file=sys.stderr, flush=True)
            said = True
        time.sleep(every)


def _take(devices: Sequence[str], count: int, folder: Path) -> list[str]:
    descriptors: dict[str, int] = {}
    for device in devices:
        name = sha256_bytes(device.encode())[:16]
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        descriptors[device] = descriptor
        if len(descriptors) == count:
            for each in descriptors.values():
                os.set_inheritable(each, True)  # torchrun takes this process's place and keeps the claim
            _held.extend(descriptors.values())
            return list(descriptors)
    for descriptor in descriptors.values():
        os.close(descriptor)
    return []


if __name__ == "__main__":
    code = main(sys.argv[1:])
    cli.ignore_late_signals()
    raise SystemExit(code)
