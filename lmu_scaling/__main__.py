"""`python -m lmu_scaling`, and the console command `lmu-scaling`."""

from __future__ import annotations

import sys

from lmu_scaling.errors import MissingPackage

AFFECTS_RESULTS = False


def start() -> int:
    """Run the command line; the models alone can be installed without what it needs."""
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
