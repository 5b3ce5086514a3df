"""One cluster for all SLURM tests, and a user's checkout of the repository on it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.needs import require
from tests.slurm.cluster import Cluster, die_with_parent, missing, processes, wait_for

ROOT = Path(__file__).resolve().parents[2]
TREE = ("Snakefile", "config.yaml", "workflow", "profiles", "envs", "lmu_scaling", "docs", "requirements.lock")
# Ask the small cluster often; the profile's pauses are for large ones.
IMPATIENT = ("--slurm-init-seconds-before-status-checks", "1", "--max-status-checks-per-second", "2")

# The GPUs here are copies of the null device: SLURM hands them out, and the jobs must be told to compute without them.
COMPUTE_ON_CPU = {rule: {"device": "cpu"} for rule in ("train", "evaluate", "complexity")}

PARTITIONS = {"cpu": {"max_runtime": 2880}, "gpu": {"max_runtime": 14, "max_gpu": 2}}

# The smoke preset with two runs instead of 33 and GPUs to ask for: what is computed does not depend on the latter.
SMALL = """
models: {variants: [lmu, transformer], sizes: [{name: 2k, d: 8}]}
training: {recipe: paper, seeds: [1], budgets: []}
plan: {accelerators: [{name: pretended GPU, kind: gpu, tflops: 10, utilisation: 0.1, memory_gb: 8}]}
"""


PATIENCE = 1800  # [s] for a machine that has other things to do

# A process without any network but its own loopback, which notebooks talk to their kernels through.
OFFLINE = """
import fcntl, os, socket, struct, sys
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS: lo is up
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require(not (reason := missing()), reason)
    found = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        found.start()
        yield found
    finally:
        found.stop()
        left = wait_for(lambda: ["none"] if not found.leftovers() else None, "all processes have ended", 30)
        assert left == ["none"]
        shutil.rmtree(found.home)


def end(process: subprocess.Popen[bytes]) -> None:
    """Leave no controller behind, whatever a test did."""
    process.kill()
    process.wait()


class Checkout:
    """The repository as a user has it, in a folder of its own."""

    def __init__(self, folder: Path, overlay: str = SMALL) -> None:
        folder.mkdir(parents=True)
        for name in TREE:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, folder / name)
        self.folder, self.results = folder, folder / "results/smoke"
        self.overlay = folder / "overlay.yaml"
        self.overlay.write_text(overlay)
        self.offline = False
        self.set_resources(COMPUTE_ON_CPU)
        partitions = folder / "profiles/slurm/partitions.yaml"
        partitions.write_text(yaml.safe_dump({"partitions": PARTITIONS}))

    def set_resources(self, resources: dict[str, dict[str, object]]) -> None:
        """Edit the profile as a user would."""
        path = self.folder / "profiles/slurm/profile.yaml"
        profile = yaml.safe_load(path.read_text())
        for rule, wanted in resources.items():
            profile["set-resources"].setdefault(rule, {}).update(wanted)
        path.write_text(yaml.safe_dump(profile))

    def command(self, profile: str, *arguments: str) -> list[str]:
        files = ["--configfile", "workflow/presets/smoke.yaml", str(self.overlay)]
        prefix = ["unshare", "--net", sys.executable, "-c", OFFLINE] if self.offline else []
        snakemake = [sys.executable, "-m", "snakemake", "--workflow-profile", f"profiles/{profile}"]
        return [*prefix, *snakemake, *files, *arguments]

    def run(self, profile: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
        """Run Snakemake to its end; what it printed."""
        controller = self.start(profile, *arguments, environment=environment)
        try:
            controller.wait(PATIENCE)
        finally:
            end(controller)
        printed = (self.folder / "snakemake.log").read_text()
        assert controller.returncode == 0, printed[-6000:]
        return printed

    def start(
        self, profile: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        base = environment or dict(os.environ)
        path = f"{Path(sys.executable).parent}:{base['PATH']}"
        with open(self.folder / "snakemake.log", "wb") as log:
            return subprocess.Popen(
                self.command(profile, *arguments),
                cwd=self.folder,
                env={**base, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )


@pytest.fixture(scope="session")
def finished(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The smoke preset, small, run from end to end through the profile."""
    checkout = Checkout(tmp_path_factory.mktemp("user") / "checkout")
    checkout.run("slurm", *IMPATIENT, environment=cluster.environment())
    return checkout


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The same on this machine: first what needs the network, then the rest without it, if the machine permits that."""
    checkout = Checkout(tmp_path_factory.mktemp("laptop") / "checkout")
    checkout.run("default", "--cores", "2", "--", "fetch")
    permitted = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    checkout.offline = permitted
    checkout.run("default", "--cores", "2")
    return checkout


class Training:
    """One run under way through SLURM, stopped in mid-step so that a fault always meets it at work."""

    def __init__(
        self, cluster: Cluster, checkout: Checkout, seed: int, as_job: bool = False, start: bool = True
    ) -> None:
        self.cluster, self.checkout, self.run = cluster, checkout, f"lmu-2k-x1-s{seed}"
        self.folder = checkout.results / "training" / self.run
        self.target = str((self.folder / "result.json").relative_to(checkout.folder))
        text = SMALL.replace("variants: [lmu, transformer]", "variants: [lmu]").replace(
            "seeds: [1]", f"seeds: [{seed}]"
        )
        checkout.overlay.write_text(text.replace("recipe: paper", "recipe: paper, steps: 120"))
        checkout.set_resources({"train": {"checkpoint_seconds": 0}})
        self.controller: subprocess.Popen[bytes] | None = None
        self.job = self.submit_as_job() if as_job else ""
        if start and not as_job:
            self.controller = self.submit()

    def submit_as_job(self) -> str:
        """Snakemake as a SLURM job (docs/cluster.md, step 6); the job's number."""
        snakemake = shlex.join(self.checkout.command("slurm", *IMPATIENT, "--", self.target))
        command = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; exec {snakemake}"
        where = ["--chdir", str(self.checkout.folder), "--output", str(self.checkout.folder / "snakemake.log")]
        return self.cluster.ask("sbatch", "--parsable", "--mem=1G", *where, "--wrap", command).strip()

    def submit(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = self.cluster.environment()
        return self.checkout.start("slurm", *IMPATIENT, *arguments, "--", self.target, environment=environment)

    def freeze(self) -> tuple[int, dict[str, str]]:
        """Stop the trainer once it has written checkpoints; its process id and its SLURM job."""
        wait_for(lambda: len(list(self.folder.glob("live/*/step-*"))) >= 2, "checkpoints", every=0.02)
        pid = next(
            pid
            for pid, command in processes()
            if "training.launch 1 train" in command and command.startswith("python") and self.run in command
        )
        os.kill(pid, signal.SIGSTOP)
        job = next(job for job in self.cluster.jobs_of("train", self.run) if job["JobState"] == "RUNNING")
        return pid, job

    def finish(self) -> str:
        assert self.controller is not None
        self.controller.wait(PATIENCE)
        printed = (self.checkout.folder / "snakemake.log").read_text()
        assert self.controller.returncode == 0, printed[-6000:]
        return printed

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        if self.controller is not None:
            end(self.controller)

    def undisturbed(self, scratch: Path) -> bytes:
        """The weights of the same run, trained by hand without any fault."""
        command = [sys.executable, "-m", "lmu_scaling", "train", "--spec", str(self.folder / "spec.json")]
        command += ["--tokens", str(self.checkout.results / "tokens/index.json"), "--live", str(scratch / "live")]
        for name in ("weights", "history", "result"):
            command += [f"--{name}", str(scratch / name)]
        subprocess.run(command, cwd=self.checkout.folder, check=True, capture_output=True)
        return (scratch / "weights").read_bytes()

    def weights(self) -> bytes:
        return (self.folder / "weights.safetensors").read_bytes()
