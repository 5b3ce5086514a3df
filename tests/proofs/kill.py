"""Prove that a run killed at random moments ends in the same bytes as an undisturbed one (docs/reliability.md).

    python -m tests.proofs.kill --kills 100    # about 45 minutes on two cores; `make test` has 8 kills

The smoke workflow is restarted after each kill. Five kinds: `job` (SIGKILL to one job), `stop` (SIGTERM to a training
job, as a scheduler sends), `controller` (SIGKILL to Snakemake; its jobs live on), `machine` (SIGKILL to everything),
`disk` (the disk is full for some seconds; it is a small one of its own, where the machine allows mount namespaces).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("job", "stop", "controller", "machine")
# Measured times differ from run to run.
MEASURED = ("analysis/complexity.csv", "analysis/complexity_slopes.csv")
NOT_COMPARED = (".manifest.json", ".log", ".tsv", ".jsonl", "/snakemake.json", "/.lock", "/.lock.held")
DISK_MB = 300


@dataclass
class KillStorm:
    """Runs the smoke workflow in one directory and kills until `kills` are reached or the workflow has finished."""

    directory: Path
    kills: int
    seed: int
    max_pause: float = 12.0  # [s] between kills
    small_disk: bool = False  # `directory` is a disk of its own, which may be filled
    done: collections.Counter[str] = field(default_factory=collections.Counter)
    restarts: int = 0
    queue: list[str] = field(default_factory=list)  # kinds that still have their turn

    def command(self, *arguments: str) -> list[str]:
        return [
            sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
            "--directory", str(self.directory), "--workflow-profile", str(ROOT / "profiles/default"),
            "--configfile", str(ROOT / "config.yaml"), str(ROOT / "workflow/presets/smoke.yaml"),
            "--cores", "2", "--set-resources", "train:checkpoint_seconds=0", *arguments,
        ]  # fmt: skip

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with open(log, "ab") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "cwd": ROOT, "env": environment}
            subprocess.run(self.command("--unlock"), **streams)
            return subprocess.Popen(self.command(), start_new_session=True, **streams)

    def run(self, log: Path) -> None:
        """Kill as often as asked, then let the workflow finish. Raises if it does not finish undisturbed."""
        rng = random.Random(self.seed)
        process = self.start(log)
        try:
            while sum(self.done.values()) < self.kills and process.poll() is None:
                self.wait_for_work(process)
                time.sleep(rng.uniform(0.2, self.max_pause))
                self.kill_once(process, rng)
                if process.poll() is not None and process.returncode != 0:
                    self.restarts += 1
                    process = self.start(log)
            self.finish(process, log)
        finally:
            self.clean_up(process)

    def wait_for_work(self, process: subprocess.Popen[bytes], seconds: float = 300.0) -> None:
        """A kill while Snakemake starts proves little, and on a busy machine nothing would ever be done."""
        deadline = time.monotonic() + seconds
        while process.poll() is None and not self.jobs() and time.monotonic() < deadline:
            time.sleep(0.2)

    def kill_once(self, process: subprocess.Popen[bytes], rng: random.Random) -> None:
        if process.poll() is not None:
            return
        if not self.queue:
            kinds = (*KINDS, "disk") if self.small_disk else KINDS
            self.queue = rng.sample(kinds, len(kinds))
        kind = self.queue.pop()
        if kind == "disk":
            self.fill(rng.uniform(2.0, 6.0))
            self.done[kind] += 1
            return
        jobs = self.jobs()
        trainings = [job for job in jobs if "train" in job.cmdline()[:6]] if kind == "stop" else jobs
        if kind in ("job", "stop") and not trainings:
            kind = "machine"
        if kind == "job":
            _signal(rng.choice(jobs), signal.SIGKILL)
        elif kind == "stop":
            _signal(rng.choice(trainings), signal.SIGTERM)
        else:
            victims = [psutil.Process(process.pid)]
            if kind == "machine":
                victims += psutil.Process(process.pid).children(recursive=True) + jobs
            for victim in victims:
                _signal(victim, signal.SIGKILL)
            process.wait()
        self.done[kind] += 1

    def fill(self, seconds: float) -> None:
        """Leave no free byte on the disk for some seconds."""
        filler = self.directory / ".filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as file:
            while True:
                file.write(b"0")
        time.sleep(seconds)
        filler.unlink()

    def jobs(self) -> list[psutil.Process]:
        """Processes of the package that work in this directory, including those whose Snakemake is dead."""
        found = []
        for process in psutil.process_iter():
            try:
                if _is_job(process.cmdline()) and Path(process.cwd()) == self.directory:
                    found.append(process)
            except (psutil.Error, OSError, IndexError):
                continue
        return found

    def finish(self, process: subprocess.Popen[bytes], log: Path) -> None:
        for _ in range(4):  # a job killed last fails this Snakemake, not the next one
            if process.wait() == 0:
                return
            self.restarts += 1
            process = self.start(log)
        if process.wait() != 0:
            raise RuntimeError(f"the workflow does not finish after {dict(self.done)}: see {log}")

    def clean_up(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while self.jobs() and time.monotonic() < deadline:
            time.sleep(0.5)
        for job in self.jobs():
            _signal(job, signal.SIGKILL)
        if process.poll() is None:
            process.kill()


def _is_job(words: list[str]) -> bool:
    """A command of the package or its launcher, not the shell around it."""
    return "bash" not in words[0] and any(word.split(".")[0] == "lmu_scaling" for word in words[:4])


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


# ---------------------------------------------------------------------------------------------------------- compare
def products(directory: Path) -> dict[str, bytes]:
    """Content of every file that must not depend on interruptions."""
    skip = depend_on_measurements(directory)
    found = {}
    for top in ("results/smoke", "paper_figures"):
        for path in sorted((directory / top).rglob("*")):
            name = path.relative_to(directory).as_posix()
            product = path.is_file() and not name.endswith(NOT_COMPARED) and "/live/" not in name
            if not product or name in skip or name.startswith("results/smoke/audit/"):
                continue
            content = path.read_bytes()
            if path.name == "result.json":  # duration and device are not results
                content = json.dumps({k: v for k, v in json.loads(content).items() if k != "machine"}).encode()
            if path.name == "runs.csv":
                rows = csv.DictReader(content.decode().splitlines())
                content = json.dumps([{k: v for k, v in row.items() if k != "seconds"} for row in rows]).encode()
            found[name] = content
    return found


def depend_on_measurements(directory: Path) -> set[str]:
    """The timings of rule complexity, and every file made from them."""
    tainted = {f"results/smoke/{name}" for name in MEASURED}
    jobs = []
    for path in directory.rglob("*.manifest.json"):
        manifest = json.loads(path.read_text("utf-8"))
        jobs.append([_named(manifest[key], path.parent, directory) for key in ("inputs", "outputs")])
    while new := [o for i, o in jobs if i & tainted and not o <= tainted]:
        tainted |= set().union(*new)
    return tainted


def _named(groups: dict[str, list[dict[str, str]]], home: Path, directory: Path) -> set[str]:
    entries = [entry for group in groups.values() for entry in group if "in" not in entry]
    return {os.path.relpath(home / entry["path"], directory) for entry in entries}


def differences(a: Path, b: Path) -> list[str]:
    left, right = products(a), products(b)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


NAMESPACE = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else [])]


def can_mount() -> bool:
    """Whether this machine allows file systems that nobody else sees."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", folder]
        return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference", type=Path, help="a finished smoke run; default: make one")
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it")
    parser.add_argument("--max-pause", type=float, default=12.0, help="seconds between kills, at most")
    parser.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.mounted and can_mount():
        os.execvp("unshare", [*NAMESPACE, sys.executable, "-m", "tests.proofs.kill", *sys.argv[1:], "--mounted"])
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="lmu-kill-"))
    reference = arguments.reference
    if reference is None:
        reference = home / "undisturbed"
        reference.mkdir(parents=True)
        KillStorm(reference, 0, 0).run(home / "undisturbed.log")
    total: collections.Counter[str] = collections.Counter()
    restarts = compared = rounds = 0
    while sum(total.values()) < arguments.kills:
        folder = home / f"storm {rounds}"
        folder.mkdir(parents=True)
        if arguments.mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)], check=True)
        storm = KillStorm(
            folder,
            arguments.kills - sum(total.values()),
            arguments.seed + rounds,
            arguments.max_pause,
            small_disk=arguments.mounted,
        )
        storm.run(home / f"storm-{rounds}.log")
        wrong = differences(reference, folder)
        if wrong:
            shutil.copytree(folder, home / f"storm-{rounds}-differs", symlinks=True)
            sys.exit(f"{len(wrong)} files differ after {dict(storm.done)}: {', '.join(wrong[:20])}")
        total, rounds = total + storm.done, rounds + 1
        restarts, compared = restarts + storm.restarts, compared + len(products(folder))
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(total.items()))
    print(f"{sum(total.values())} kills ({listed}) in {rounds} runs, {restarts} restarts: {compared} files identical")
    if arguments.keep is None:
        shutil.rmtree(home, ignore_errors=True)  # of the disks of their own only the mount points


if __name__ == "__main__":
    main()
