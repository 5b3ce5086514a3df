"""`python -m lmu_scaling`."""

from lmu_scaling.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
