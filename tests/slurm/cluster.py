"""A throw-away SLURM cluster on loopback from Debian's packages: real daemons, no systemd, no cgroups, no accounting.

GPUs are copies of the null device: SLURM counts, hands out and names them, and nothing can compute on them.
Every daemon is a child of the test process and is stopped by its process id.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo", "sacct", "sacctmgr", "sshare")
SBIN = "/usr/sbin:/usr/local/sbin:/sbin"
CPUS, MEMORY_MB = 8, 32000


def missing() -> str | None:
    """Why no cluster can be started here; None if one can."""
    absent = [name for name in PROGRAMS if _program(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)"
    if os.geteuid() != 0:
        return "a throw-away SLURM needs root (device nodes for the GPUs)"
    return None


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 600.0, every: float = 0.2) -> Any:
    """The first true answer of `condition`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(every)
    raise TimeoutError(f"{what}: not within {seconds:.0f} s")


def die_with_parent() -> None:
    """For a child: TERM when the tests end, however they end (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Cluster:
    """`nodes` nodes with `gpus` GPUs each, in partitions `cpu`, `gpu` and `brief` (one minute)."""

    def __init__(self, home: Path, nodes: int = 2, gpus: int = 2) -> None:
        self.home, self.gpus = home, gpus
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.conf = home / "slurm.conf"
        self.children: list[subprocess.Popen[bytes]] = []

    # ------------------------------------------------------------------------------------------------- up and down
    def start(self) -> None:
        for name in ("log", "state", "bin", "munge"):
            (self.home / name).mkdir(parents=True)
        self._write_configuration()
        self._write_clients()
        key, munge = self.home / "munge/key", self.home / "munge"
        munge.chmod(0o700)
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self._start_munge()
        self._spawn("slurmctld", "-D", "-c", "-f", str(self.conf))
        for node in self.nodes:
            self._spawn("slurmd", "-D", "-N", node, "-f", str(self.conf))
        wait_for(lambda: self._idle() == set(self.nodes), "nodes become idle", 60)

    def _start_munge(self) -> None:
        munge = self.home / "munge"
        munged = ["munged", "--foreground", "--force", "--num-threads=2"]
        for flag, name in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("seed-file", "seed")):
            munged.append(f"--{flag}={munge / name}")
        self._spawn(*munged)
        wait_for((munge / "socket").exists, "munge")

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """munge is restarted, and SLURM's controller is away until the end of the block; nodes and their jobs stay.

        A job that ended while its node had no munge would never end for SLURM: `srun` could not be told.
        """
        self._end_daemon("slurmctld")
        self._end_daemon("munged")
        self._start_munge()
        try:
            yield
        finally:
            self._spawn("slurmctld", "-D", "-f", str(self.conf))
            wait_for(lambda: self.ask("sinfo", check=False), "the controller answers", 60)

    def _end_daemon(self, name: str) -> None:
        child = next(child for child in self.children if Path(child.args[0]).name == name)  # type: ignore[index]
        _end(child)
        self.children.remove(child)

    def stop(self) -> None:
        """Cancel what runs, then stop the daemons in the order opposite to their start."""
        if self.children:
            self._quietly("scancel", "--user", getpass.getuser())
            self._quietly("scancel", "--full", "--signal=KILL", "--user", getpass.getuser())
        for child in reversed(self.children):
            _end(child)
        self.children.clear()
        for node in self.nodes:
            self.kill_jobs_on(node)

    def kill_jobs_on(self, node: str) -> None:
        """As cgroups do on a real cluster: without them SLURM loses sight of a process whose parent has ended."""
        for pid, _, environment in self._processes():
            if f"SLURMD_NODENAME={node}\0" in environment:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def lose(self, node: str) -> None:
        """The node dies: it is DOWN for the controller, and its jobs' processes are gone without a word."""
        self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        self.kill_jobs_on(node)

    def leftovers(self) -> list[str]:
        """Command lines of living processes that belong to this cluster or to one of its jobs."""
        return [f"{pid} {command}" for pid, command, _ in self._processes()]

    def _processes(self) -> Iterator[tuple[int, str, str]]:
        """Number, command line and environment."""
        for pid, command in processes():
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if pid != os.getpid() and (str(self.home) in command or str(self.home) in environment):
                yield pid, command, environment

    def _quietly(self, *command: str) -> None:
        subprocess.run(command, env=self.environment(), capture_output=True, timeout=30, check=False)

    def _spawn(self, program: str, *arguments: str) -> None:
        with open(self.home / "log" / f"{program}.{len(self.children)}.out", "ab") as log:
            child = subprocess.Popen(
                [str(_program(program)), *arguments],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.children.append(child)

    def _idle(self) -> set[str]:
        found = self.ask("sinfo", "-h", "-N", "-p", "cpu", "-t", "idle", "-o", "%N", check=False)
        return set(found.split())

    # ------------------------------------------------------------------------------------------------ configuration
    def _write_configuration(self) -> None:
        ports = _free_ports(1 + len(self.nodes))
        host, home = socket.gethostname().split(".")[0], self.home
        nodes, gres = [], []
        for node, port in zip(self.nodes, ports[1:], strict=True):
            devices = home / "dev" / node
            devices.mkdir(parents=True)
            (home / "spool" / node).mkdir(parents=True)
            for number in range(self.gpus):
                os.mknod(devices / f"gpu{number}", 0o20666, Path(os.devnull).stat().st_rdev)
            gres.append(f"NodeName={node} Name=gpu File={devices}/gpu[0-{self.gpus - 1}]")
            nodes.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
                f"RealMemory={MEMORY_MB} Gres=gpu:{self.gpus} State=UNKNOWN"
            )
        (home / "gres.conf").write_text("\n".join(gres) + "\n")
        settings = {
            "ClusterName": "throwaway",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": ports[0],
            "SlurmUser": getpass.getuser(),
            "SlurmdUser": getpass.getuser(),
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={home}/munge/socket",
            "CredType": "cred/munge",
            "StateSaveLocation": f"{home}/state",
            "SlurmdSpoolDir": f"{home}/spool/%n",
            "SlurmctldPidFile": f"{home}/slurmctld.pid",
            "SlurmdPidFile": f"{home}/slurmd.%n.pid",
            "SlurmctldLogFile": f"{home}/log/slurmctld.log",
            "SlurmdLogFile": f"{home}/log/slurmd.%n.log",
            "SlurmdParameters": "config_overrides",  # pretend to have CPUs and memory as configured
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "GresTypes": "gpu",
            "AccountingStorageType": "accounting_storage/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "MpiDefault": "none",
            "ReturnToService": 0,  # a node that is set to DOWN stays there
            "JobRequeue": 1,
            "MinJobAge": 7200,
            "KillWait": 5,
            "SlurmdTimeout": 60,
            "SchedulerParameters": "sched_interval=5,bf_interval=5",
            "MaxArraySize": 4,  # tasks 0 to 3
        }
        lines = [f"{key}={value}" for key, value in settings.items()] + nodes
        for name, longest in (("cpu", "2-0"), ("gpu", "2-0"), ("brief", "1")):
            default = "YES" if name == "cpu" else "NO"
            lines.append(
                f"PartitionName={name} Nodes=ALL Default={default} MaxTime={longest} DefMemPerCPU=500 State=UP"
            )
        self.conf.write_text("\n".join(lines) + "\n")

    def _write_clients(self) -> None:
        """Clients that know this cluster: the plugin drops SLURM_CONF inside jobs, PATH stays."""
        for name in CLIENTS:
            if program := shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}"):
                script = self.home / "bin" / name
                script.write_text(f'#!/bin/sh\nSLURM_CONF="{self.conf}" exec "{program}" "$@"\n')
                script.chmod(0o755)

    # ---------------------------------------------------------------------------------------------------- questions
    def environment(self) -> dict[str, str]:
        """The environment of a user who is logged in here."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, "SLURM_CONF": str(self.conf), "PATH": f"{self.home}/bin:{os.environ['PATH']}:{SBIN}"}

    def ask(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def jobs(self) -> list[dict[str, str]]:
        """All jobs that SLURM remembers, finished ones included."""
        lines = self.ask("scontrol", "--oneliner", "--detail", "show", "job").splitlines()
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if line.startswith("JobId=")]

    def state(self, number: str) -> str:
        return next(job["JobState"] for job in self.jobs() if job["JobId"] == number)

    def jobs_of(self, rule: str, wildcard: str = "") -> list[dict[str, str]]:
        """The plugin writes a job's rule and wildcards into its comment."""
        jobs = [job for job in self.jobs() if job.get("Comment", "").startswith(f"rule_{rule}")]
        return [job for job in jobs if wildcard in job["Comment"]]


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(20)


def processes() -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found.append((int(folder.name), command))
    return found


def was_sent(number: signal.Signals, pid: int) -> bool:
    """Whether a stopped process has got this signal: it waits for it to go on, or has gone on and ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", status, re.M)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
