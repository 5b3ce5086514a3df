"""The self-test says what is right and what is wrong on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmu_scaling.errors import ResultsError
from lmu_scaling.models.loss import linear_cross_entropy
from lmu_scaling.runtime import read_json
from lmu_scaling.training import selftest as module


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setitem(module.SIZES, "cpu", ((16, 64, 2, 500),))


def test_it_checks_and_times_layer_head_and_step_and_says_what_to_paste(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module.selftest("cpu", out=tmp_path / "selftest.json")
    record = read_json(tmp_path / "selftest.json", "machine", "checks", "timings")
    assert {timing["what"].split(",")[0] for timing in record["timings"]} == {"layer", "head", "step"}
    assert all(check["error"] <= check["bound"] for check in record["checks"])
    text = capsys.readouterr().out
    assert "WRONG" not in text
    assert "paste everything above into an issue" in text


def test_a_wrong_result_is_named_and_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "linear_cross_entropy", lambda *parts: 1.001 * linear_cross_entropy(*parts))
    with pytest.raises(ResultsError, match="head value, d = 16"):
        module.selftest("cpu")
    assert capsys.readouterr().out.count("WRONG") == 3
