"""`python -m lmu_scaling`."""

from lmu_scaling.cli import main

AFFECTS_RESULTS = False


if __name__ == "__main__":
    raise SystemExit(main())
