"""A storm of kills over the smoke workflow: whatever dies, whenever, the end is the same bytes (docs/reliability.md).

    python -m benchmarks.kill --kills 24          full length, about a quarter of an hour on two cores

Four kinds of death, at random moments: a job is killed; a training job is told to stop (SIGTERM, as a scheduler does);
Snakemake is killed and its jobs live on; everything dies at once, as when a machine loses power.
"""

from __future__ import annotations

import argparse
import collections
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

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("job", "stop", "controller", "machine")
# What is measured, not computed: times differ from run to run.
MEASURED = ("analysis/complexity.csv", "analysis/complexity_slopes.csv")
NOT_COMPARED = (".manifest.json", ".log", ".tsv", ".jsonl")


@dataclass
class Storm:
    """Kills in one working directory until `kills` are reached or the workflow is finished."""

    directory: Path
    kills: int
    seed: int
    longest: float = 12.0
    targets: tuple[str, ...] = ()
    root: Path = ROOT
    done: collections.Counter[str] = field(default_factory=collections.Counter)
    restarts: int = 0
    order: list[str] = field(default_factory=list)

    def command(self, *arguments: str) -> list[str]:
        files = [str(self.root / "config.yaml"), str(self.root / "workflow/presets/smoke.yaml")]
        return [
            sys.executable, "-m", "snakemake", "--snakefile", str(self.root / "Snakefile"),
            "--directory", str(self.directory), "--workflow-profile", str(self.root / "profiles/default"),
            "--configfile", *files, "--cores", "2", "--set-resources", "train:checkpoint_seconds=0", *arguments,
        ]  # fmt: skip

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        unlock = self.command("--unlock")
        subprocess.run(unlock, cwd=self.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        targets = ["--", *self.targets] if self.targets else []
        with open(log, "ab") as file:
            return subprocess.Popen(
                self.command(*targets), cwd=self.root, env=environment, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def rage(self, log: Path) -> None:
        """Kill until enough, then let it finish. Raises if the undisturbed end fails."""
        weather = random.Random(self.seed)
        process = self.start(log)
        try:
            while sum(self.done.values()) < self.kills and process.poll() is None:
                time.sleep(weather.uniform(0.5, self.longest))
                self.strike(process, weather)
                if process.poll() is not None and process.returncode != 0:
                    self.restarts += 1
                    process = self.start(log)
            self.finish(process, log)
        finally:
            self.bury(process)

    def strike(self, process: subprocess.Popen[bytes], weather: random.Random) -> None:
        if process.poll() is not None:
            return
        if not self.order:  # every kind has its turn
            self.order = weather.sample(KINDS, len(KINDS))
        kind = self.order.pop()
        jobs = self.jobs()
        trainings = [job for job in jobs if "train" in job.cmdline()[:6]] if kind == "stop" else jobs
        if kind in ("job", "stop") and not trainings:
            kind = "machine"
        if kind == "job":
            _signal(weather.choice(jobs), signal.SIGKILL)
        elif kind == "stop":
            _signal(weather.choice(trainings), signal.SIGTERM)
        else:
            victims = [psutil.Process(process.pid)]
            if kind == "machine":
                victims += psutil.Process(process.pid).children(recursive=True) + jobs
            for victim in victims:
                _signal(victim, signal.SIGKILL)
            process.wait()
        self.done[kind] += 1

    def jobs(self) -> list[psutil.Process]:
        """Processes of the package that work in this directory, also those whose Snakemake has died."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if _is_ours(words) and Path(process.cwd()) == self.directory:
                    found.append(process)
            except (psutil.Error, OSError, IndexError):
                continue
        return found

    def finish(self, process: subprocess.Popen[bytes], log: Path) -> None:
        for _ in range(4):  # a job killed last fails this Snakemake, not the next
            if process.wait() == 0:
                return
            self.restarts += 1
            process = self.start(log)
        if process.wait() != 0:
            raise RuntimeError(f"the workflow does not finish after {dict(self.done)}: see {log}")

    def bury(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while self.jobs() and time.monotonic() < deadline:
            time.sleep(0.5)
        for job in self.jobs():
            _signal(job, signal.SIGKILL)
        if process.poll() is None:
            process.kill()


def _is_ours(words: list[str]) -> bool:
    """A verb, or the launcher of a verb; not the shell around it."""
    return "bash" not in words[0] and any(word.split(".")[0] == "lmu_scaling" for word in words[:4])


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


# ---------------------------------------------------------------------------------------------------------- compare
def products(directory: Path) -> dict[str, bytes]:
    """Every product whose bytes must not depend on what happened on the way."""
    skip = depend_on_measurements(directory)
    found = {}
    for top in ("results/smoke", "paper_figures"):
        for path in sorted((directory / top).rglob("*")):
            name = path.relative_to(directory).as_posix()
            product = path.is_file() and not name.endswith(NOT_COMPARED) and "/live/" not in name
            if not product or name in skip or name.startswith("results/smoke/audit/"):
                continue
            content = path.read_bytes()
            if path.name == "result.json":  # how long it took, and on what, is not a result
                content = json.dumps({k: v for k, v in json.loads(content).items() if k != "machine"}).encode()
            if path.name == "runs.csv":
                rows = csv.DictReader(content.decode().splitlines())
                content = json.dumps([{k: v for k, v in row.items() if k != "seconds"} for row in rows]).encode()
            found[name] = content
    return found


def depend_on_measurements(directory: Path) -> set[str]:
    """The timings of rule complexity, and all that is made from them."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference", type=Path, default=None, help="a finished smoke run, else one is made")
    parser.add_argument("--keep", type=Path, default=None, help="work here and leave everything there")
    arguments = parser.parse_args()
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="lmu-kill-"))
    reference = arguments.reference
    if reference is None:
        reference = home / "calm"
        reference.mkdir(parents=True)
        Storm(reference, 0, 0).rage(home / "calm.log")
    total: collections.Counter[str] = collections.Counter()
    restarts = compared = rounds = 0
    while sum(total.values()) < arguments.kills:
        place = home / f"storm {rounds}"
        place.mkdir(parents=True)
        storm = Storm(place, arguments.kills - sum(total.values()), arguments.seed + rounds)
        storm.rage(home / f"storm-{rounds}.log")
        wrong = differences(reference, place)
        if wrong:
            sys.exit(f"{len(wrong)} files differ after {dict(storm.done)}: {', '.join(wrong[:20])}")
        total, rounds = total + storm.done, rounds + 1
        restarts, compared = restarts + storm.restarts, compared + len(products(place))
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(total.items()))
    print(f"{sum(total.values())} kills ({listed}) in {rounds} runs, {restarts} restarts: {compared} files identical")
    if arguments.keep is None:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
