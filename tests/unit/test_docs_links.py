"""Links in the pages lead somewhere, what is said twice is said alike, and the habits' files call what exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from lmu_scaling import __version__
from lmu_scaling.jobs import jobs
from tests.needs import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Ids of headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_or_heading_leads_there(page: Path) -> None:
    for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, heading = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        assert not heading or heading in anchors(path), f"{page.name}: {target}"


def test_every_documented_job_exists() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    named = set(re.findall(r"python -m lmu_scaling ([a-z][a-z-]+)", text))
    assert named
    assert named <= set(jobs()), named - set(jobs())


def test_the_version_is_the_same_everywhere() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == __version__
    assert json.loads((ROOT / "codemeta.json").read_text("utf-8"))["version"] == __version__
    assert re.search(rf"^## (\[?v?){re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*)[^=\n]*:", (ROOT / "Makefile").read_text("utf-8"), re.M))


def test_the_actions_call_ci_with_parts_that_make_knows() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    matrix = workflow["jobs"]["check"]["strategy"]["matrix"]["include"]
    image = workflow["jobs"]["check"]["container"]["image"]
    assert re.fullmatch(r"python:\$\{\{ matrix.python \}\}-(bookworm|trixie)", image), "packages have Debian's names"
    assert {entry["part"] for entry in matrix} == {"lint", "unit", "smoke", "slurm", "wheel", "docs"} <= targets()
    assert len({entry["python"] for entry in matrix if entry["part"] == "smoke"}) == 2
    assert any(".ci/run ${{ matrix.part }}" in step.get("run", "") for step in workflow["jobs"]["check"]["steps"])


def test_pre_commit_uses_the_locked_tools() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    assert {"ruff", "snakefmt", "mypy"} <= {hook["id"] for hook in hooks}
    assert all(hook["language"] == "system" and hook["entry"].startswith(".venv/bin/") for hook in hooks)
