"""Rivals that need packages of their own: environments under benchmarks/.cache/, and processes in them that are timed.

A peer's module is run in its environment with its settings as JSON. It prints one JSON line with its versions; then it
reads one word per line, does what the word names, and answers with the seconds that took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# glibc's spelling of `keep_freed_memory`: a process that is timed beside ours must have the same allocator.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62)}


@dataclass(frozen=True)
class Environment:
    """Pinned packages; with `borrow` it also sees the packages of this environment, so that both use one torch."""

    name: str
    packages: tuple[str, ...]
    borrow: bool = False

    def python(self) -> Path:
        """The interpreter; the environment is made on first use, and anew when its pins change."""
        folder = HERE / ".cache" / self.name
        interpreter, complete = folder / "bin" / "python", folder / "complete"
        wanted = "\n".join(self.packages)
        if not complete.exists() or complete.read_text() != wanted:
            print(f"making the environment {self.name} ({', '.join(self.packages)}) ...", flush=True)
            venv.create(folder, with_pip=True, clear=True)
            if self.borrow:
                self._borrow(folder)
            command = [str(interpreter), "-m", "pip", "install", "-qq", *self.packages]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the environment {self.name} could not be made:\n{done.stderr[-2000:]}")
            complete.write_text(wanted)
        return interpreter

    @staticmethod
    def _borrow(folder: Path) -> None:
        """A path file: pip counts what it finds there as installed, and never touches it, as it lies outside."""
        (own,) = folder.glob("lib/python*/site-packages")
        (own / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")


class Peer:
    """A process that times itself on request."""

    def __init__(self, module: str, environment: Environment, **settings: Any) -> None:
        command = [str(environment.python()), "-m", module, json.dumps(settings)]
        quiet = os.environ | KEEP_FREED_MEMORY | {"TF_CPP_MIN_LOG_LEVEL": "3", "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=quiet,
            cwd=HERE.parent,
        )
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"a peer ended; try it by hand: {' '.join(map(str, self.process.args))}")  # type: ignore[arg-type]

    def run(self, word: str) -> Callable[[], float]:
        """What `interleaved` calls: ask for one pass, return its seconds."""

        def ask() -> float:
            assert self.process.stdin is not None
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            return float(self._answer()["seconds"])

        return ask

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def serve(works: dict[str, Callable[[], Any]], versions: dict[str, str], clock: str) -> None:
    """The other side, in the peer's environment: answers requests until its input ends."""
    import sys
    import time

    now = {"wall": time.perf_counter, "cpu": time.process_time}[clock]
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        start = now()
        works[line.strip()]()
        print(json.dumps({"seconds": now() - start}), flush=True)
