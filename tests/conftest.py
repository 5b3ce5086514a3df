"""For all tests: one thread per process, so that they neither fight for cores nor depend on how many there are."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
