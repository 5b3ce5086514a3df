"""Install locks into this environment with pip, by hash, and show how far it is.

    .venv/bin/python envs/install.py requirements.lock [requirements-dev.lock]

The locks name everything, so that pip resolves nothing. torch comes first, in the build that this machine's pip
prefers; if that is a CUDA build, envs/cuda.lock follows. On a terminal one line moves; elsewhere a line appears every
ten seconds. All of pip's output is in <environment>/pip.log.
Only the standard library is used.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import IO

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--require-hashes")
CUDA = Path(__file__).with_name("cuda.lock")
LOG = Path(sys.prefix, "pip.log")
EVERY = 10.0  # seconds between lines without a terminal


class Display:
    """One moving line on a terminal, or a line now and then."""

    def __init__(self) -> None:
        self.start = self.shown = time.monotonic()
        self.moving = sys.stdout.isatty()

    def show(self, text: str, at_once: bool = False) -> None:
        now = time.monotonic()
        if self.moving:
            print(f"\r\033[K  {now - self.start:4.0f} s  {text}", end="", flush=True)
        elif at_once or now - self.shown >= EVERY:
            print(f"  {now - self.start:4.0f} s  {text}", flush=True)
            self.shown = now

    def close(self) -> None:
        if self.moving:
            print("\r\033[K", end="", flush=True)


class Counter:
    """How many packages pip has collected and installed, from its output and from the folder it installs into."""

    def __init__(self, locks: list[Path]) -> None:
        self.total = sum(len(re.findall(r"^[A-Za-z0-9][^\s;]*==", lock.read_text("utf-8"), re.M)) for lock in locks)
        self.collected, self.name, self.installing = 0, "", False
        self.site = Path(sysconfig.get_path("purelib"))
        self.before = self._present()

    def read(self, line: str) -> None:
        if line.startswith("Ignoring "):
            self.total -= 1
        elif match := re.match(r"(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9_.-]+)", line):
            self.collected, self.name = self.collected + 1, match[1]
        elif match := re.match(r"\s+Downloading \S+ \(([\d.]+ [kMG]B)\)", line):
            self.name = f"{self.name.partition(' ')[0]} ({match[1]})"
        elif line.startswith("Installing collected"):
            self.installing, self.total = True, line.count(",") + 1

    def text(self) -> str:
        if self.installing:
            return f"installing {min(self.total, self._present() - self.before)} of {self.total} packages"
        return f"package {self.collected} of {self.total}: {self.name}"

    def _present(self) -> int:
        return sum(1 for _ in self.site.glob("*.dist-info"))


def install(locks: list[Path], log: IO[str], display: Display) -> int:
    words = [word for lock in locks for word in ("-r", str(lock))]
    counter = Counter(locks)
    display.show(f"{counter.total} packages from {', '.join(lock.name for lock in locks)}", at_once=True)
    process = subprocess.Popen([*PIP, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
    assert process.stdout is not None
    for line in process.stdout:
        log.write(line)
        counter.read(line)
        display.show(counter.text())
        if counter.installing:
            break
    while process.poll() is None and counter.installing:
        display.show(counter.text())
        time.sleep(0.5)
    log.write(process.stdout.read())
    return process.wait()


def install_torch(lock: Path, log: IO[str], display: Display) -> int:
    """Install the build of torch that pip prefers on this machine: a CPU build, if its settings offer one.

    With hashes pip would prefer PyPI's files to any other, so the hash of what it chose is checked here.
    """
    entry = re.search(r"^(torch==[^\s;\\]+).*\n((?:\s+--hash=\S+.*\n)+)", lock.read_text("utf-8"), re.M)
    if entry is None or _has(entry[1]):
        return 0
    display.show(f"{entry[1]} (large)", at_once=True)
    with tempfile.TemporaryDirectory() as scratch:
        fetch = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "-d", scratch]
        if failed := subprocess.call([*fetch, entry[1]], stdout=log, stderr=subprocess.STDOUT):
            return failed
        (wheel,) = Path(scratch).iterdir()
        with open(wheel, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if f"sha256:{found}" not in entry[2]:
            log.write(f"{wheel.name} has the hash {found}, which {lock} does not list\n")
            return 1
        display.show(f"installing {wheel.name}")
        place = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", str(wheel)]
        return subprocess.call(place, stdout=log, stderr=subprocess.STDOUT)


def _has(pin: str) -> bool:
    name, _, version = pin.partition("==")
    try:
        return importlib.metadata.version(name).partition("+")[0] == version
    except importlib.metadata.PackageNotFoundError:
        return False


def needs_cuda() -> bool:
    """Whether the installed torch requires NVIDIA's libraries; a CPU build does not."""
    requirements = importlib.metadata.requires("torch") or []
    return sys.platform == "linux" and any(re.match(r"nvidia-|cuda-", text) for text in requirements)


def link() -> None:
    """Let this environment find the package, Snakemake the logger, and a person the command `lmu-scaling`."""
    root = Path(__file__).resolve().parents[1]
    Path(sysconfig.get_path("purelib"), "lmu-scaling.pth").write_text(f"{root}\n{root / 'workflow/plugins'}\n", "utf-8")
    command = Path(sys.executable).with_name("lmu-scaling")
    lines = [f"#!{sys.executable}", "from lmu_scaling.__main__ import start", "raise SystemExit(start())"]
    command.write_text("\n".join(lines) + "\n", "utf-8")
    command.chmod(0o755)


def main(names: list[str]) -> int:
    display = Display()
    with open(LOG, "w", encoding="utf-8") as log:
        failed = install_torch(Path(names[0]), log, display) or install([Path(name) for name in names], log, display)
        if not failed and needs_cuda():
            failed = install([CUDA], log, display)
    display.close()
    if not failed:
        link()
    else:
        errors = [line for line in LOG.read_text("utf-8").splitlines() if "WARNING: Location" not in line]
        print("\n".join(errors[-15:]), file=sys.stderr)
        print(
            f"error: pip could not install the lock\n  where: {LOG}\n  what to do: read the end of that file; ", end=""
        )
        print("often the network was away, and the same command works later", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
