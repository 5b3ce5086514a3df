"""`python -m lmu_scaling`, and the console command `lmu-scaling`."""

from __future__ import annotations

import os
import sys

from lmu_scaling.errors import MissingPackage

AFFECTS_RESULTS = False
# The libraries of linear algebra read these when they are loaded. The last bits follow from the number of threads.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def start() -> int:
    """Run the command line; the models alone can be installed without what it needs."""
    if sys.argv[1:2] == ["audit"]:  # it makes again what the workflow's jobs made, with one thread
        os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        from lmu_scaling.cli import ignore_late_signals, main
    except ModuleNotFoundError as error:
        print(f"error: {MissingPackage.of(error)}", file=sys.stderr)
        return MissingPackage.exit_code
    code = main()
    ignore_late_signals()
    return code


if __name__ == "__main__":
    raise SystemExit(start())
