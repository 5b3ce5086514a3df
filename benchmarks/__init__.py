"""Speed and memory against rivals: `python -m benchmarks` measures every section and writes docs/performance.md."""
