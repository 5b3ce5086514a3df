"""Measure every section in turn, then write docs/performance.md.

    python -m benchmarks                        # 25 to 60 minutes on two cores, the machine otherwise idle
    python -m benchmarks --quick                # under five minutes; kept apart, in benchmarks/.cache/
    python -m benchmarks --only layer step      # some sections, then the page

Each section is a process of its own and merges its tables into benchmarks/results.json. Threads and clock are decided
once, before the benchmarks themselves raise the load.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from benchmarks import harness
from benchmarks.report import SECTIONS
from lmu_scaling.runtime import duration

MAX_WAIT = 180.0  # [s] for the load of earlier work (`make run`) to fade


def commands(args: argparse.Namespace) -> list[list[str]]:
    """Module and arguments of each process, in order: growth reads what data has stored."""
    shared = ["--threads", str(args.threads), "--clock", args.clock, "--rounds", str(args.rounds)]
    shared += ["--quick"] if args.quick else []
    shared += [] if args.peers else ["--no-peers"]
    shared += ["--results", str(args.results)] if args.results else []
    return [[name, *shared] for name in SECTIONS if not args.only or name in args.only]


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--only", nargs="+", default=[], choices=list(SECTIONS), help="sections to measure")
    args = parser.parse_args()
    harness.wait_for_quiet(0 if args.quick else MAX_WAIT)
    args.threads, args.clock = harness.threads_and_clock(args)
    environment = os.environ | {"BENCHMARKS_LOAD": str(harness.load())}
    print(f"load {harness.load():g}: {args.threads} thread(s), {args.clock} seconds", flush=True)
    failed, begun = [], time.monotonic()
    for module, *arguments in commands(args):
        start = time.monotonic()
        print(f"== {module} {' '.join(arguments)}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        failed += [module] if subprocess.run(command, cwd=harness.ROOT, env=environment).returncode else []
        print(f"== {module}: {duration(time.monotonic() - start)}", flush=True)
    page = [sys.executable, "-m", "benchmarks.report", *(["--quick"] if args.quick else [])]
    subprocess.run(page, cwd=harness.ROOT, check=True)
    print(f"all in {duration(time.monotonic() - begun)}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
