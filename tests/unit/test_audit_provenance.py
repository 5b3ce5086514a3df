"""The bundle's description is a valid Provenance Run Crate, by the real roc-validator, offline.

The validator asks for the two JSON-LD contexts that the crate names. They are served from here: the terms below are the
ones our crates use, with the meaning that the published contexts give them.
"""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

from lmu_scaling.audit.provenance import CONTEXT, PROFILES, WORKFLOW, describe_run
from tests.needs import needs

RO_CRATE = "https://w3id.org/ro/crate/1.1/context"
BIOSCHEMAS = "https://bioschemas.org/"
SCHEMA_ORG = """about actionStatus alternateName contentSize isBasedOn ScholarlyArticle datePublished description
encodingFormat endTime hasPart identifier instrument license mainEntity mentions name object
position programmingLanguage result softwareVersion startTime step url version workExample
ComputerLanguage ControlAction CreateAction CreativeWork Dataset HowTo HowToStep OrganizeAction
SoftwareApplication SoftwareSourceCode"""
SPECIAL = {
    "File": "http://schema.org/MediaObject",
    "ComputationalWorkflow": f"{BIOSCHEMAS}ComputationalWorkflow",
    "FormalParameter": f"{BIOSCHEMAS}FormalParameter",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}
JOBS = {
    "training/lmu-2k-x1-s1/train.manifest.json": ("train", ["spec.json"], ["weights.safetensors"]),
    "evaluation/lmu-2k-x1-s1/evaluate.manifest.json": ("evaluate", ["weights.safetensors"], ["summary.json"]),
    "training/lmu-2k-x1-s2/train.manifest.json": ("train", ["spec.json"], ["weights2.safetensors"]),
}


def manifests() -> dict[str, dict[str, Any]]:
    def group(names: list[str]) -> dict[str, list[dict[str, Any]]]:
        return {"files": [{"path": name} for name in names]}

    times = {"started": "2026-01-01T10:00:00Z", "ended": "2026-01-01T11:00:00Z"}
    return {
        name: {"job": job, "inputs": group(read), "outputs": group(wrote), **times}
        for name, (job, read, wrote) in JOBS.items()
    }


def write_crate(folder: Path) -> dict[str, Any]:
    """A crate as `bundle` describes it, with three jobs and their files; returns its entities by id."""
    from rocrate.rocrate import ROCrate

    sources = folder / "sources"
    sources.mkdir(parents=True)
    crate = ROCrate(version="1.1")
    crate.name, crate.description = "a replication", "three jobs"
    crate.root_dataset["datePublished"] = "2026-01-01"
    crate.metadata.extra_contexts.append(CONTEXT)
    for name in ("Snakefile", "LICENSE"):
        (sources / name).write_text(name)
    crate.license = crate.add_file(sources / "LICENSE", "LICENSE")
    facts = {"name": "the workflow", "encodingFormat": "text/plain", "@type": WORKFLOW}
    crate.add_workflow(sources / "Snakefile", "Snakefile", main=True, lang="snakemake", properties=facts)
    files = {}
    for name in sorted({name for _, read, wrote in JOBS.values() for name in [*read, *wrote]}):
        (sources / name).write_text(name)
        properties = {"name": name, "encodingFormat": "application/octet-stream"}
        files[name] = crate.add_file(sources / name, name, properties=properties)

    def named(_: str, group: dict[str, list[dict[str, Any]]]) -> list[Any]:
        return [files[entry["path"]] for entries in group.values() for entry in entries]

    describe_run(crate, manifests(), named, [files["summary.json"]])
    crate.write(folder / "crate")
    content = json.loads((folder / "crate/ro-crate-metadata.json").read_text())
    return {entity["@id"]: entity for entity in content["@graph"]}


def test_each_manifest_is_an_action_of_its_tool_and_its_step(tmp_path: Path) -> None:
    graph = write_crate(tmp_path)
    root = graph["./"]
    assert {entry["@id"] for entry in root["conformsTo"]} == set(PROFILES)
    for name, (job, read, wrote) in JOBS.items():
        action = graph[f"#{name}"]
        assert action["instrument"] == {"@id": f"#tool-{job}"}
        assert [entry["@id"] for entry in action["object"]] == read
        assert [entry["@id"] for entry in action["result"]] == wrote
        assert graph[f"#control/{name}"]["instrument"] == {"@id": f"#step-{job}"}
        assert graph[f"#control/{name}"]["object"] == {"@id": f"#{name}"}
    assert {step["@id"] for step in graph["Snakefile"]["step"]} == {"#step-train", "#step-evaluate"}
    assert len(graph["#organise"]["object"]) == len(JOBS)
    assert graph["#organise"]["result"] == {"@id": "#run"}


def validate(folder: Path, cache: Path) -> Any:
    from rocrate_validator import services
    from rocrate_validator.models import ValidationSettings

    fill_cache(cache)
    settings = ValidationSettings(
        rocrate_uri=str(folder),
        profile_identifier="provenance-run-crate",
        requirement_severity="REQUIRED",
        cache_path=cache,
        offline=True,
    )
    return services.validate(settings)


def fill_cache(cache: Path) -> None:
    """Put both contexts into the validator's HTTP cache."""
    from requests.adapters import HTTPAdapter
    from requests_cache import CachedSession
    from urllib3 import HTTPResponse

    class Local(HTTPAdapter):
        def send(self, request: Any, *_: Any, **__: Any) -> Any:
            body = io.BytesIO(json.dumps(context()).encode())
            headers = {"Content-Type": "application/ld+json"}
            raw = HTTPResponse(body, headers, 200, preload_content=False, request_url=request.url)
            return self.build_response(request, raw)

    with CachedSession(cache_name=str(cache), backend="sqlite", allowable_codes=(200,)) as session:
        session.mount("https://", Local())
        for url in (RO_CRATE, CONTEXT):
            assert session.get(url, headers={"Accept": "application/ld+json, application/json"}).status_code == 200


def context() -> dict[str, Any]:
    return {"@context": {**{term: f"http://schema.org/{term}" for term in SCHEMA_ORG.split()}, **SPECIAL}}


@needs(importlib.util.find_spec("rocrate_validator"), "needs roc-validator (make test installs it)")
@pytest.mark.slow
def test_the_validator_accepts_it_and_sees_what_is_missing(tmp_path: Path) -> None:
    write_crate(tmp_path)
    result = validate(tmp_path / "crate", tmp_path / "cache")
    assert result.passed(), "\n".join(f"{issue.check.name}: {issue.message}" for issue in result.get_issues())
    metadata = tmp_path / "crate/ro-crate-metadata.json"
    content = json.loads(metadata.read_text())
    for entity in content["@graph"]:
        if entity["@type"] == "ControlAction":
            entity.pop("instrument")
    metadata.write_text(json.dumps(content))
    broken = validate(tmp_path / "crate", tmp_path / "cache")
    assert not broken.passed()
    assert any("ControlAction" in str(issue.message) for issue in broken.get_issues())
