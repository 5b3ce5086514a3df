"""One thread per process in all tests: parallel tests share the cores, and results do not depend on their number."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
