"""The benchmarks' own instruments: fair turns, honest medians, memory in a child, tables as Markdown."""

import itertools

import numpy as np
import pytest

from benchmarks import harness, report


def test_rivals_take_turns_and_each_gets_the_median_of_its_own_time():
    now = [0.0]
    order = []

    def worker(name, costs):
        costs = itertools.cycle(costs)

        def run():
            order.append(name)
            now[0] += next(costs)

        return run

    runs = {"steady": worker("steady", [2.0]), "noisy": worker("noisy", [1.0, 1.0, 9.0])}
    found = harness.interleaved(runs, rounds=6, warm=0, clock=lambda: now[0])
    assert order[:4] == ["steady", "noisy", "noisy", "steady"]
    assert found["steady"].median == 2.0
    assert found["noisy"].median == 1.0
    assert found["noisy"].spread == (1.0, 7.0)


def test_another_process_reports_its_own_seconds():
    found = harness.interleaved({"peer": lambda: 0.25}, rounds=3, warm=0)
    assert found["peer"].median == 0.25


def allocate(held, peak):
    """A run that touches `peak` bytes and keeps `held` of them."""

    def run():
        np.ones(peak - held, dtype=np.uint8)
        return np.ones(held, dtype=np.uint8)

    return run


def test_peak_and_held_memory_are_those_of_the_run():
    found = harness.peak_memory("tests.unit.test_benchmarks_harness:allocate", held=10_000_000, peak=60_000_000)
    assert found["held"] == pytest.approx(10e6, abs=2e6)
    assert found["peak"] == pytest.approx(50e6, abs=3e6)


def test_a_failing_child_is_reported():
    with pytest.raises(RuntimeError, match="no_such_thing"):
        harness.peak_memory("tests.unit.test_benchmarks_harness:no_such_thing")


def test_tables_become_markdown():
    table = {
        "title": "T",
        "columns": ["a", "b"],
        "rows": [["x", 1234.5], [None, 0.1234]],
        "notes": ["n"],
        "machine": {"cores": 2},
    }
    text = report.render(table)
    assert "| x | 1,234 |" in text
    assert "| – | 0.123 |" in text
    assert "* Machine: cores 2." in text


def test_every_table_on_disk_is_complete():
    for table in report.tables():
        assert set(table) >= {"title", "columns", "rows", "notes", "machine"}
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
