"""Two machines that share only the results: nothing is trained twice and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.network_disk import NetworkDisk
from tests.slurm.cluster import processes, wait_for
from tests.workflow.conftest import ROOT, SMOKE

pytestmark = pytest.mark.slow
RUN = "lmu-2k-x1-s1"
FOLDER = f"results/smoke/training/{RUN}"
MADE = ("weights.safetensors", "history.parquet", "result.json", "train.manifest.json")
LATE = 3.0


class Machine:
    """A checkout's working directory on a machine of its own, with `results` on the shared disk."""

    def __init__(self, folder: Path, disk: NetworkDisk, clock: int) -> None:
        self.folder, self.environment = folder, disk.machine(folder.name, clock)
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{self.environment['PATH']}"
        folder.mkdir()
        (folder / "results").symlink_to(disk.folder)

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--directory", str(self.folder), "--workflow-profile", str(ROOT / "profiles/default")]
        command += ["--configfile", str(ROOT / SMOKE), "--cores", "1"]
        command += ["--set-resources", "train:checkpoint_seconds=0", "--", f"{FOLDER}/result.json"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, **streams)

    def trainer(self) -> int:
        """The process that trains the run here, stopped in mid-step."""
        wait_for(lambda: len(list((self.folder / FOLDER).glob("live/*/step-*"))) >= 2, "checkpoints", every=0.005)
        for pid, command in processes():
            if command.startswith("python") and RUN in command and Path(f"/proc/{pid}/cwd").resolve() == self.folder:
                os.kill(pid, signal.SIGSTOP)
                return pid
        raise AssertionError("no trainer")


@pytest.mark.parametrize("flock", ["local", "none"])
def test_a_second_machine_is_told_that_the_first_one_works_and_then_finds_all_done(
    smoke_run: Path, tmp_path: Path, flock: str
) -> None:
    """Clocks fourteen minutes apart, files visible late, and locks that do not reach the other machine."""
    shutil.copytree(smoke_run / "results", tmp_path / "disk", symlinks=True)
    for name in MADE:
        (tmp_path / "disk" / Path(FOLDER).relative_to("results") / name).unlink()
    time.sleep(LATE)
    disk = NetworkDisk(tmp_path / "disk", tmp_path / "scratch", LATE, flock)
    one, two = (Machine(tmp_path / name, disk, clock) for name, clock in (("one", 420), ("two", -420)))

    first = one.start()
    trainer = one.trainer()
    try:
        second = two.start()
        refused, _ = second.communicate(timeout=600)
    finally:
        os.kill(trainer, signal.SIGCONT)
    assert second.returncode != 0, refused
    assert "another Snakemake works on this experiment" in refused and "Traceback" not in refused
    assert f"where: results/smoke/.lock (process {first.pid} on one)" in refused and "what to do: wait" in refused
    printed, _ = first.communicate(timeout=600)
    assert first.returncode == 0, printed[-3000:]

    second = two.start()
    printed, _ = second.communicate(timeout=600)
    assert second.returncode == 0, printed[-3000:]
    log = (two.folder / "results/smoke/logs/train" / f"{RUN}.log").read_text()
    assert "Nothing to be done" in printed or "nothing to do" in log
    for name in MADE[:2]:
        assert (two.folder / FOLDER / name).read_bytes() == (smoke_run / FOLDER / name).read_bytes(), name
    assert not list(disk.folder.rglob("*.held")), "no lock is left behind"
