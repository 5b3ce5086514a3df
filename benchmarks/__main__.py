"""`make bench`: every benchmark in turn, then docs/performance.md. `make bench-quick`: a taste of each in minutes.

    python -m benchmarks                          # 25 to 60 minutes on two cores, the machine otherwise idle
    python -m benchmarks --quick                  # under five minutes; kept apart, in benchmarks/.cache/
    python -m benchmarks --only layer step        # some sections, then the page
    python -m benchmarks --results results/sotu   # the finished run whose time is told by stage

Each section is a process of its own and merges itself into benchmarks/results.json. Threads and clock are decided once,
before the benchmarks themselves raise the load.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import machine
from lmu_scaling.runtime import duration

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 180.0  # seconds for the load of what ran before (`make run`) to fade
ARCHIVE = "benchmarks/.cache/owt2.jsonl.zst.tar"
MEASURED = ("layer", "step", "loader", "analysis", "workflow", "growth", "whole")  # these share options
BEFORE_GROWTH = (  # the growth with the corpus is read from `data`
    ("make_owt2", "--megabytes", "420", "--out", ARCHIVE),
    ("data", "--archive", ARCHIVE),
    ("duplicates", "--scratch", "benchmarks/.cache"),
    ("coverage", "--out", "docs/coverage.md"),
)
QUICK_ARCHIVE = "benchmarks/.cache/quick.jsonl.zst.tar"
QUICK_BEFORE_GROWTH = (
    ("make_owt2", "--megabytes", "40", "--out", QUICK_ARCHIVE),
    ("data", "--quick", "--archive", QUICK_ARCHIVE),
)


def commands(quick: bool, shared: list[str], only: list[str], results: Path | None) -> list[list[str]]:
    """Module and arguments of each process, in order."""
    found: list[list[str]] = []
    for name in MEASURED:
        if name == "growth":
            found += [list(entry) for entry in (QUICK_BEFORE_GROWTH if quick else BEFORE_GROWTH)]
        place = ["--results", str(results)] if name == "whole" and results else []
        found.append([name, *shared, *(["--quick"] if quick else []), *place])
    wanted = {*only, *(["make_owt2"] if "data" in only else [])}
    return [entry for entry in found if not only or entry[0] in wanted]


def main() -> int:
    parser = machine.options(__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="sections to measure; default: all")
    parser.add_argument("--results", type=Path, default=None, help="a finished run; default: the newest")
    args = parser.parse_args()
    machine.wait_for_quiet(0 if args.quick else PATIENCE)
    threads, clock = machine.threads_and_clock(args)
    shared = ["--threads", str(threads), "--clock", clock, "--rounds", str(args.rounds)]
    environment = os.environ | {"BENCHMARKS_LOAD": str(machine.load())}
    print(f"load {machine.load():g}: {threads} thread(s), {clock} seconds", flush=True)
    failed, begun = [], time.monotonic()
    for module, *arguments in commands(args.quick, shared, args.only, args.results):
        start = time.monotonic()
        print(f"== {module} {' '.join(arguments)}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        failed += [module] if subprocess.run(command, cwd=ROOT, env=environment).returncode else []
        print(f"== {module}: {duration(time.monotonic() - start)}", flush=True)
    page = [sys.executable, "-m", "benchmarks.report", *(["--quick"] if args.quick else [])]
    subprocess.run(page, cwd=ROOT, check=True)
    print(f"all in {duration(time.monotonic() - begun)}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
