"""The benchmarks' own tools: interleaved timing, memory in a child process, the stored file, targets, the page."""

import argparse
import itertools
import json
import math
import os
import sys

import numpy as np
import pytest

from benchmarks import __main__ as everything
from benchmarks import data, data_jobs, growth, harness, report, store, training, workflow
from benchmarks.store import TARGETS, Target, cell, judge


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
    assert "* Machine: 2 cores." in text


def test_facts_shared_by_all_machines_are_stated_once(tmp_path):
    results = tmp_path / "results.json"
    for section, threads in (("training", 1), ("analysis", 2)):
        store.merge(section, [table(1.0, threads=threads), table(2.0, title="U", threads=threads)], "", results)
    text = report.build(results, tmp_path / "page.md")
    assert text.count("Machine: p, 2 cores, wall seconds, load 0.5, sgemm 100 GFLOP/s.") == 1
    assert text.count("threads: 1") == text.count("threads: 2") == 1


def test_numbers_behind_a_figure_are_stored_and_not_printed(tmp_path):
    results = tmp_path / "results.json"
    store.merge("training", [table(1.0), table(2.0, title="U") | {"hidden": True}], "", results)
    assert [entry["title"] for entry in store.load(results)["training"]["tables"]] == ["T", "U"]
    assert "### U" not in report.build(results, tmp_path / "page.md")


def test_every_table_on_disk_is_complete():
    for section in store.load().values():
        for table in section["tables"]:
            assert set(table) >= {"title", "columns", "rows", "notes", "machine"}
            assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_a_ratio_is_taken_round_by_round():
    ours, rival = harness.Timing((1.0, 2.0, 4.0)), harness.Timing((3.0, 6.0, 12.0))
    found = harness.ratio(ours, rival)  # a busy round slows both
    assert (found["value"], found["low"], found["high"]) == (3.0, 3.0, 3.0)
    assert harness.rate(ours, 8.0)["value"] == 4.0


# ------------------------------------------------------------------------------------------- one file, many sections
def table(value, low=None, high=None, title="T", better="higher", threads=1, load=0.5, sgemm=100.0, **more):
    rows = [["a", cell(value, low, high, better=better, **more)]]
    conditions = {"processor": "p", "cores": 2, "threads": threads, "clock": "wall", "load": load}
    conditions |= {"sgemm_gflops": sgemm}
    return {"title": title, "columns": ["what", "x"], "rows": rows, "notes": [], "machine": conditions}


def worse(path, section="s"):
    (entry,) = store.cells(store.load(path)[section]["tables"][0]).values()
    return entry.get("was")


def test_a_section_is_replaced_and_the_others_stay(tmp_path):
    path = tmp_path / "results.json"
    store.merge("one", [table(1.0)], "words", path)
    store.merge("two", [table(2.0)], "", path)
    store.merge("one", [table(3.0)], "", path)
    found = store.load(path)
    assert set(found) == {"one", "two"}
    assert found["one"]["tables"][0]["rows"][0][1]["value"] == 3.0
    assert found["two"]["tables"][0]["rows"][0][1]["value"] == 2.0


@pytest.mark.parametrize(
    ("old", "new", "was"),
    [
        ({"value": 100.0}, {"value": 85.0}, 100.0),
        ({"value": 100.0}, {"value": 120.0}, None),
        ({"value": 100.0}, {"value": 95.0}, None),  # measured once: less than ten per cent is no news
        ({"value": 100.0, "low": 99.0, "high": 101.0}, {"value": 95.0}, 100.0),
        ({"value": 100.0, "low": 90.0, "high": 110.0}, {"value": 85.0}, None),  # within the spread
        ({"value": 100.0}, {"value": 120.0, "better": "lower"}, 100.0),
        ({"value": 100.0, "load": 5.0}, {"value": 50.0}, None),  # a busy machine: ratios only
        ({"value": 100.0, "load": 5.0}, {"value": 50.0, "unit": "×"}, 100.0),
        ({"value": 100.0, "threads": 2}, {"value": 50.0}, None),  # other conditions are not compared
        ({"value": 100.0, "sgemm": 120.0}, {"value": 50.0}, None),  # another machine of the same name: ratios only
        ({"value": 100.0, "sgemm": 120.0}, {"value": 50.0, "unit": "×"}, 100.0),
        ({"value": 100.0, "sgemm": 105.0}, {"value": 50.0}, 100.0),
        ({"value": 100.0, "title": "U"}, {"value": 50.0}, None),
    ],
)
def test_what_got_worse_by_more_than_its_spread_is_marked(tmp_path, old, new, was):
    path = tmp_path / "results.json"
    store.merge("s", [table(**old)], "", path)
    assert worse(path) is None
    store.merge("s", [table(**new)], "", path)
    assert worse(path) == was
    assert ("▼ was 100" in report.render(store.load(path)["s"]["tables"][0])) == (was is not None)


def test_the_file_has_a_line_per_row_and_loses_nothing(tmp_path):
    path = tmp_path / "results.json"
    given = [table(1 / 3, 0.3, 0.4, unit="×", target="stage"), table(2.0, title="U") | {"hidden": True}]
    given[0]["rows"].append([None, 1.5])
    store.merge("s", given, "words", path)
    assert store.load(path)["s"]["tables"] == given
    lines = path.read_text().splitlines()
    assert sum(line.startswith('  ["a", {"value": ') for line in lines) == 2
    assert "  [null, 1.5]]}" in path.read_text()


def test_the_stored_page_is_made_from_the_stored_results(tmp_path):
    assert report.build(store.RESULTS, tmp_path / "page.md") == report.PAGE.read_text("utf-8")


# ----------------------------------------------------------------------------------------------------------- targets
def test_targets_are_met_missed_or_open():
    targets = {
        "up": Target("up", 2.0, "≥", numbers=2),
        "down": Target("down", 0.5, "≤"),
        "none": Target("none", 1, "<"),
    }
    found = judge([table(2.0, target="up"), table(0.6, target="down"), table(1.0)], targets)
    assert {name: verdict.word for name, verdict in found.items()} == {
        "up": "partly measured",
        "down": "missed",
        "none": "not measured",
    }
    assert judge([table(2.0, target="up"), table(3.0, target="up")], targets)["up"].word == "met"
    assert judge([table(2.0, target="up"), table(1.9, target="up")], targets)["up"].word == "missed"


def test_the_page_begins_with_what_is_missed(tmp_path):
    results = tmp_path / "results.json"
    store.merge("step", [table(1.2, target="step_50257")], "more speed.", results)
    text = report.build(results, tmp_path / "page.md")
    first, second = text.index("**Missed:**"), text.index("## Layer")
    assert first < text.index("* Step and loss: more speed.") < second, "what limits it comes next"
    assert "1.2 ✗" in text
    assert "**Room for improvement:** more speed." in text


def test_the_page_says_when_all_targets_are_met():
    values = {name: target.limit if target.sense != "<" else target.limit / 2 for name, target in TARGETS.items()}
    full = [table(value, target=name) for name, value in values.items() for _ in range(TARGETS[name].numbers)]
    assert "**All targets are met.**" in report.summary(judge(full), [], {})


def facts(megabytes, cpu, rss=100.0):
    """One measurement of the data stages: a second of start-up is the caller's business."""
    times = {"cpu": cpu, "wall": cpu, "critical": cpu, "bytes": megabytes * 1e6, "rss": rss * 1e6, "load": 0.5}
    return times | {"temporary": 1.0, "kept": 1.0}


def data_seen():
    """tiktoken takes 0.09 s per MB by itself and 0.1 s within the stages; fastokens 0.01 s and 0.02 s."""
    seen = {("usual", "tiktoken", 1): [facts(25, 10.0, 900)]}
    for engine, alone, staged in (("tiktoken", 0.09, 0.1), ("fastokens", 0.01, 0.02)):
        seen["bare", engine, 1] = [facts(100, 100 * alone)]
        for kind, megabytes in (("stages", 100), ("middle", 25), ("small", 5)):
            peak = 105 if kind == "stages" else 100
            seen[kind, engine, 1] = [facts(megabytes, 1 + staged * megabytes, peak)]
            seen[kind, engine, 2] = [facts(megabytes, 1 + staged * megabytes / 2, peak)]
    return seen


def test_the_data_stages_are_judged_start_up_apart_and_by_the_papers_engine():
    verdicts = judge([data.comparisons(data_seen())])
    assert verdicts["data_bare"].values == (pytest.approx(0.9), pytest.approx(0.5))
    assert data.paper_engine() == "fastokens"
    assert verdicts["data_usual"].values == (pytest.approx(40 / 3),)  # 0.4 s per MB against 3 s for 100 MB
    assert verdicts["data_memory"].values == (pytest.approx(0.105), pytest.approx(0.105))


def test_memory_is_judged_by_its_growth_with_the_text_and_not_by_start_up():
    """12 MB more for 300 MB more text are 40 MB/GB; what the first megabytes of text cost is start-up."""
    seen = data_seen()
    assert (
        "start-up" in data.comparisons(seen)["notes"][-1] and judge([data.comparisons(seen)])["data_flat"].values == ()
    )
    for engine in data.ENGINES:
        seen["stages", engine, 1][0] |= {"bytes": 400e6, "rss": 112e6}
        seen["middle", engine, 1][0] |= {"bytes": 100e6, "rss": 100e6}
        seen["small", engine, 1][0]["rss"] = 50e6
    verdict = judge([data.comparisons(seen)])["data_flat"]
    assert verdict.values == (pytest.approx(40), pytest.approx(40)) and verdict.word == "met"
    seen["stages", "fastokens", 1][0]["rss"] = 116e6
    assert judge([data.comparisons(seen)])["data_flat"].word == "missed"


def test_the_peak_of_a_job_is_its_own_and_not_that_of_the_process_that_starts_it():
    ballast = bytearray(200_000_000)
    ballast[:: os.sysconf("SC_PAGE_SIZE")] = b"1" * len(ballast[:: os.sysconf("SC_PAGE_SIZE")])
    small, large = (data_jobs.run([sys.executable, "-c", f"x = b'1' * {size}"])["rss"] for size in (1_000, 150_000_000))
    assert small < 60e6 and 150e6 < large < 200e6


def test_a_job_that_fails_under_measurement_is_shown():
    with pytest.raises(SystemExit, match="boom"):
        data_jobs.run([sys.executable, "-c", "raise ValueError('boom')"])


def test_wall_time_on_two_cores_is_left_out_when_others_compute():
    seen = data_seen()
    on_the_wall = {row[0]: row[2] for row in data.comparisons(seen)["rows"]}["two parts on two cores, wall time"]
    assert on_the_wall["value"] == pytest.approx(11 / 6)
    for group in seen.values():
        group[0]["load"] = 4.0
    table = data.comparisons(seen)
    assert {row[0]: row[2] for row in table["rows"]}["two parts on two cores, wall time"] is None
    assert any("shared the machine" in note for note in table["notes"])


def test_growth_with_the_corpus_is_read_from_what_was_stored():
    rows = {(row[0], row[1]): row for row in growth.corpus_exponents([data.each(data_seen())])}
    assert rows["tiktoken", "CPU time"][3]["value"] == pytest.approx(math.log(11 / 1.5) / math.log(20))
    assert rows["tiktoken", "CPU time"][4]["value"] == pytest.approx(1.0)  # a line, but for the start-up
    assert rows["fastokens", "peak memory"][3]["value"] == pytest.approx(math.log(1.05) / math.log(20))
    assert growth.corpus_exponents([]) == []


# ----------------------------------------------------------------------------------------------------- the whole of it
def test_quiet_machines_use_all_cores_and_the_wall(monkeypatch):
    asked = argparse.Namespace(threads=0, clock="auto")
    monkeypatch.setattr(harness, "load", lambda: 0.1)
    assert harness.threads_and_clock(asked)[1] == "wall"
    monkeypatch.setattr(harness, "load", lambda: 5.0)
    assert harness.threads_and_clock(asked) == (1, "cpu")
    assert harness.threads_and_clock(argparse.Namespace(threads=2, clock="auto")) == (2, "wall")


def options(*words):
    return harness.options("").parse_args(words)


def test_sections_run_in_an_order_that_feeds_growth():
    every = options("--threads", "1", "--clock", "cpu")
    names = [entry[0] for entry in everything.commands(argparse.Namespace(**vars(every), only=[]))]
    assert names == list(report.SECTIONS)
    assert names.index("data") < names.index("growth")
    some = argparse.Namespace(**vars(options("--quick", "--no-peers", "--results", "results/x")), only=["step", "data"])
    found = everything.commands(some)
    assert [entry[0] for entry in found] == ["step", "data"]
    for _, *arguments in found:
        given = options(*arguments)
        assert (given.quick, given.peers, str(given.results)) == (True, False, "results/x")


def test_a_finished_run_is_summed_by_stage(tmp_path):
    for name, seconds in (("train/a", 30.0), ("train/b", 10.0), ("fit", 10.0)):
        path = tmp_path / "benchmarks" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:10\t100.0\t-\n")
    rows = workflow.by("stage", workflow.jobs(tmp_path))
    assert [(row[0], row[1], row[3]["value"]) for row in rows] == [("training", 2, 0.8), ("analysis", 1, 0.2)]
    assert json.dumps(rows)


def test_an_unfinished_run_is_not_summed(tmp_path):
    (tmp_path / "sotu" / "benchmarks").mkdir(parents=True)
    found = workflow.run_tables(workflow.newest(tmp_path), argparse.Namespace(clock="wall"))
    assert not found[0]["rows"]
    assert "no finished run of experiment sotu" in found[0]["notes"][0]
    assert workflow.remaining(found).startswith("unknown until there is a finished run.")


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("_LinearCrossEntropyBackward", "loss"),
        ("NativeLMUBackward", "LMU"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::mkldnn_rnn_layer_backward", "LSTM"),
        ("aten::addmm", "products"),
        ("aten::native_layer_norm", "norms and gelu"),
        ("aten::linalg_vector_norm", "Adam, clipping"),
        ("aten::copy_", training.REST),
    ],
)
def test_operations_of_a_step_are_put_into_parts(operation, part):
    assert training.part_of(operation) == part
