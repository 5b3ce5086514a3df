"""`make bench`: every benchmark in turn, then docs/performance.md. `make bench-quick`: those that take minutes.

Each benchmark is a process of its own and writes benchmarks/results/<name>.json; the page shows whatever is there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = "benchmarks/.cache/owt2.jsonl.zst.tar"
QUICK = (
    ("benchmarks.layer", "--quick"),
    ("benchmarks.step", "--quick"),
)
FULL = (
    ("benchmarks.layer",),
    ("benchmarks.step",),
    ("benchmarks.make_owt2", "--megabytes", "420", "--out", ARCHIVE),
    ("benchmarks.data", "--archive", ARCHIVE),
    ("benchmarks.duplicates", "--scratch", "benchmarks/.cache"),
    ("benchmarks.coverage", "--out", "docs/coverage.md"),
)


def main(quick: bool) -> int:
    failed = []
    for module, *arguments in QUICK if quick else FULL:
        print(f"== {module} {' '.join(arguments)}", flush=True)
        done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT)
        failed += [module] if done.returncode else []
    subprocess.run([sys.executable, "-m", "benchmarks.report"], cwd=ROOT, check=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
