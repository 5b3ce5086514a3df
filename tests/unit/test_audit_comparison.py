"""What differs between a stored result and the one that was made again."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.audit.comparison import compare

VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.floats(-10, 10) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def written(folder: Path, name: str, value: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


@given(a=VALUES, b=VALUES)
def test_equal_bytes_are_the_only_equality(a: object, b: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("json")
    one, two = written(folder, "a.json", a), written(folder, "b.json", b)
    found = compare(one, two)
    assert (found is None) == (one.read_bytes() == two.read_bytes())
    if found is not None and a != b:
        assert found.size > 0


@given(x=st.floats(-1e3, 1e3), step=st.floats(1e-9, 1))
def test_the_size_is_the_difference_of_the_numbers(
    x: float, step: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("json")
    found = compare(written(folder, "a.json", {"x": [1, x]}), written(folder, "b.json", {"x": [1, x + step]}))
    if x + step != x:
        assert found is not None and math.isclose(found.size, abs(x + step - x) / max(1, abs(x)), rel_tol=1e-9)
        assert "x[1]" in found.what


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_tables_are_compared_by_value_and_the_place_is_named(tmp_path: Path, name: str) -> None:
    paths = []
    for i, loss in enumerate((2.0, 2.5)):
        path = tmp_path / f"{i}{name}"
        frame = pd.DataFrame({"run": ["a", "b"], "loss": [1.0, loss]})
        frame.to_csv(path, index=False, quoting=csv.QUOTE_MINIMAL) if name == "t.csv" else frame.to_parquet(path)
        paths.append(path)
    found = compare(*paths)
    assert found is not None and math.isclose(found.size, 0.25) and "[1].loss" in found.what


@pytest.mark.parametrize(("suffix", "data"), [("png", b"\x89PNG1"), ("json", b"{"), ("csv", b"\xff,1\n")])
def test_pictures_and_damaged_files_differ_without_measure(tmp_path: Path, suffix: str, data: bytes) -> None:
    one, two = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    one.write_bytes(data)
    two.write_bytes(data + b"2")
    found = compare(one, two)
    assert found is not None and math.isinf(found.size)


def test_what_a_training_measures_about_itself_may_differ_and_nothing_else(tmp_path: Path) -> None:
    measured = {"seconds": 1.0, "tokens_per_second": 9.0, "mfu": 0.1, "data_wait_share": 0.2, "peak_memory_bytes": 5}
    result = {"final_loss": math.nan, "steps": 40, "machine": {"precision": "float32", **measured}}
    again = {**result, "machine": {"precision": "float32", **dict.fromkeys(measured, 3)}}
    one = written(tmp_path, "a.json", result)
    assert compare(one, written(tmp_path, "b.json", again)) is None
    for other in ({**again, "steps": 41}, {**again, "machine": {**again["machine"], "precision": "bfloat16"}}):
        found = compare(one, written(tmp_path, "b.json", other))
        assert found is not None and found.size > 0
    del again["machine"]["mfu"]
    assert compare(one, written(tmp_path, "b.json", again)) is not None
