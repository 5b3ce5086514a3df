"""Making tokens again writes into the scratch folder, whatever a manifest says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmu_scaling.audit.replay import NotHere
from lmu_scaling.audit.results_folder import ResultsFolder
from lmu_scaling.audit.retokenize import moved


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    home = tmp_path / "results" / "toy"
    home.mkdir(parents=True)
    (home / "config.manifest.json").write_text("{}")
    return ResultsFolder(home)


def test_a_file_of_the_results_is_looked_for_in_the_scratch_folder(folder: ResultsFolder, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    assert moved(folder, Path("results/toy/tokens/index.json"), scratch) == scratch / "tokens" / "index.json"
    assert moved(folder, [Path("results/toy/a")], scratch) == [scratch / "a"]


@pytest.mark.parametrize("path", ["/etc/passwd", "elsewhere/file", "results/toy/../../../file", "results/other/file"])
def test_a_path_outside_is_refused(folder: ResultsFolder, tmp_path: Path, path: str) -> None:
    with pytest.raises(NotHere):
        moved(folder, Path(path), tmp_path / "scratch")
