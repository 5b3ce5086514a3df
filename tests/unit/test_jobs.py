"""A handler's signature is the only declaration of a job: flags, the rule's command and the manifest follow from it."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lmu_scaling import cli, jobs
from lmu_scaling.errors import ConfigError
from lmu_scaling.jobs import command, find
from lmu_scaling.runtime import read_json, sha256_file

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))

HANDLER = '''
from pydantic import BaseModel

from lmu_scaling.jobs import Folder, Input, Inputs, Output, job


class Bounds(BaseModel):
    low: float
    high: float


@job
def toy_job(
    text: Input,
    parts: Inputs,
    folder: Folder,
    bounds: Bounds,
    limit: int | None,
    out: Output,
    label: str = "a",
    extra: Input | None = None,
    loud: bool = False,
) -> dict:
    """Write down what arrived.

    Args:
        text: a file
        limit: a number, or null
    """
    values = [type(text).__name__, len(parts), bounds.high, limit, label, extra and extra.name, loud]
    out.write_text(repr(values))
    return {"seen": limit}
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scratch package of one module with one handler."""
    package = tmp_path / "package" / "lmu_scaling"
    (package / "toy").mkdir(parents=True)
    (package / "toy" / "handler.py").write_text(HANDLER)
    monkeypatch.setattr(jobs, "PACKAGE", package)
    import lmu_scaling

    monkeypatch.setattr(lmu_scaling, "__path__", [*lmu_scaling.__path__, str(package)])
    jobs.jobs.cache_clear()
    yield tmp_path
    jobs.jobs.cache_clear()
    for name in [name for name in sys.modules if name.startswith("lmu_scaling.toy")]:
        del sys.modules[name]


def arguments(folder: Path, **changes: str | None) -> list[str]:
    (folder / "text").write_text("abc")
    flags = {
        "--text": [str(folder / "text")],
        "--parts": [str(folder / "text"), str(folder / "text")],
        "--folder": [str(folder)],
        "--bounds": ['{"low": 0, "high": 2.5}'],
        "--limit": ["7"],
        "--out": [str(folder / "out")],
        "--manifest": [str(folder / "out.manifest.json")],
        "--code": ["0123456789abcdef"],
    }
    flags |= {key: [] if value is None else [value] for key, value in changes.items()}
    return ["toy-job", *(word for flag, values in flags.items() for word in (flag, *values))]


def test_values_arrive_with_the_types_of_the_signature(toy: Path) -> None:
    assert cli.main(arguments(toy)) == 0
    assert (toy / "out").read_text() == "['PosixPath', 2, 2.5, 7, 'a', None, False]"


@pytest.mark.parametrize("words", [["--full", "FOLDER"], ["FOLDER", "--full"], ["--full", "True", "FOLDER"]])
def test_a_switch_does_not_take_the_folder_after_it_for_its_value(words: list[str]) -> None:
    entry = jobs.find("audit")
    arguments, _ = cli.arguments_of(entry, entry.load(), ["audit", *words])
    assert (arguments["full"], arguments["results"]) == (True, Path("FOLDER"))


@pytest.mark.parametrize("text", ["null", "None"])
def test_null_and_pythons_none_are_no_value(toy: Path, text: str) -> None:
    assert cli.main(arguments(toy, **{"--limit": text, "--extra": None, "--loud": None})) == 0
    assert (toy / "out").read_text() == "['PosixPath', 2, 2.5, None, 'a', None, True]"


@pytest.mark.parametrize(
    ("flag", "text"), [("--limit", "many"), ("--limit", "1.5"), ("--bounds", '{"low": 1}'), ("--loud", "perhaps")]
)
def test_a_value_of_another_type_is_a_usage_error_that_names_the_flag(
    toy: Path, capsys: pytest.CaptureFixture[str], flag: str, text: str
) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments(toy, **{flag: text}))
    assert left.value.code == 2
    assert flag in capsys.readouterr().err
    assert not (toy / "out").exists()


def test_the_manifest_lists_inputs_and_outputs_by_their_role(toy: Path) -> None:
    (toy / "more").write_text("x")
    assert cli.main([*arguments(toy), "--read", str(toy / "more"), str(toy / "text"), "--wrote", str(toy / "out")]) == 0
    manifest = read_json(toy / "out.manifest.json")
    assert set(manifest["inputs"]) == {"text", "parts", "read"}
    assert [entry["sha256"] for entry in manifest["inputs"]["read"]] == [sha256_file(toy / "more")]
    assert set(manifest["outputs"]) == {"out"}
    assert manifest["seen"] == 7


def test_the_rules_command_has_every_required_parameter_and_the_named_optional_ones(toy: Path) -> None:
    text = command("toy-job", "extra", resources=("label",))
    assert text == (
        "python -m lmu_scaling toy-job --text {input.text:q} --parts {input.parts:q} --folder {params.folder:q}"
        " --bounds {params.bounds:q} --limit {params.limit:q} --out {output.out:q} --label {resources.label:q}"
        " --extra {input.extra:q} --read {input:q} --wrote {output:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
    )
    with pytest.raises(ConfigError, match="no parameter colour"):
        command("toy-job", "colour")


def test_two_handlers_of_one_name_are_refused(toy: Path) -> None:
    (toy / "package" / "lmu_scaling" / "toy" / "other.py").write_text(HANDLER)
    jobs.jobs.cache_clear()
    with pytest.raises(ConfigError, match="two jobs are called 'toy-job'"):
        jobs.jobs()


def test_an_unknown_job_is_explained_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


def test_help_is_for_people_and_has_no_flags_of_the_workflow(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["toy-job", "--help"])
    shown = capsys.readouterr().out
    assert "--limit" in shown and "a number, or null" in shown
    assert not re.search(r"--(manifest|code|read|wrote)\b", shown)


@pytest.mark.parametrize("name", sorted(jobs.jobs()))
def test_every_job_explains_itself_and_each_of_its_flags(name: str) -> None:
    entry = find(name)
    assert entry.summary.endswith((".", "…")), "the docstring's first line is the help"
    handler = entry.load()
    explained = set(re.findall(r"^    (\w+): ", inspect.getdoc(handler) or "", re.MULTILINE))
    flags = {parameter.name for parameter in entry.parameters} - {"code"}
    assert explained == flags


def test_every_rules_command_comes_from_a_handler() -> None:
    for path in RULES:
        for block in re.findall(r"    shell:\n(.*?)(?=\n\n|\Z)", path.read_text(), re.DOTALL):
            assert "command(" in block, f"{path.name}: {textwrap.shorten(block, 100)}"


def test_the_version_can_be_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lmu_scaling", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("lmu-scaling 0.")


def test_settings_may_be_json_of_any_depth(toy: Path) -> None:
    bounds = json.dumps({"low": -1e-9, "high": 1e9})
    assert cli.main(arguments(toy, **{"--bounds": bounds})) == 0
    assert "1000000000.0" in (toy / "out").read_text()
