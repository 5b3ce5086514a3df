"""What `make run` prints at its end."""

from __future__ import annotations

from pathlib import Path

from lmu_scaling.paper.run_summary import losses, verdicts

BASELINE = "a GPT-2-style transformer with learned positions"


def claim(name: str, verdict: str, conceptual: str) -> dict[str, str]:
    text = "At equal training the LMU model has a lower loss than transformers, up to 1M parameters"
    return {"id": name, "verdict": verdict, "conceptual": conceptual, "claim": text, "baseline": BASELINE}


def test_what_was_decided_is_said_in_full_and_the_rest_is_counted() -> None:
    claims = [claim("C1", "not testable at this scale", "conditions not met") for _ in range(12)]
    claims += [claim("C3m", "not testable at this scale", "contradicts"), claim("C10", "reproduced", "not applicable")]
    lines = verdicts(claims, width=78)
    text = " ".join(" ".join(lines).split())
    assert "direct verdicts on the paper's claims: 13 not testable at this scale, 1 reproduced" in text
    assert f"C10 reproduced: {claims[0]['claim']} (against {BASELINE})" in text
    assert f"C3m contradicts: {claims[0]['claim']}" in text
    assert "C1 " not in text
    assert max(map(len, lines)) <= 78


def test_losses_are_means_over_the_seeds_of_the_main_setting(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    rows = [
        "lmu,6k,16,1,main,5.1",
        "lmu,6k,16,1,main,5.3",
        "lmu,2k,8,1,main,6.0",
        "lmu,2k,8,2,main,1",
        "lmu,2k,8,1,x,1",
    ]
    table.write_text("\n".join(["variant,size,d,multiple,setting,test_loss", *rows]) + "\n", encoding="utf-8")
    heading, row = losses(table)
    assert heading.split()[-2:] == ["2k", "6k"]
    assert row.split() == ["lmu", "6.000", "5.200"]
