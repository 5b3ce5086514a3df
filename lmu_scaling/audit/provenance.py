"""The jobs of an experiment in the words of the Provenance Run Crate profile (w3id.org/ro/wfrun/provenance/0.5).

The workflow has a step and a tool for each kind of job. Each manifest is one action of its tool, controlled by the
step; one action stands for the whole run, which the engine organised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmu_scaling import __version__
from lmu_scaling.jobs import jobs

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
# Terms of the profiles that the RO-Crate context lacks.
CONTEXT = "https://w3id.org/ro/terms/workflow-run/context"
ENGINE = {"name": "Snakemake", "url": "https://snakemake.github.io"}
WORKFLOW = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]  # the types of the main workflow
COMPLETED = "http://schema.org/CompletedActionStatus"

Files = Callable[[str, dict[str, list[dict[str, Any]]]], list[Any]]


def describe_run(crate: Any, manifests: dict[str, dict[str, Any]], files: Files, products: list[Any]) -> None:
    """Add profiles, steps, tools and actions to a crate whose files and main workflow are there.

    `files(manifest, group)` gives the crate's entities of a manifest's inputs or outputs.
    """
    from rocrate.model.contextentity import ContextEntity

    def add(identifier: str, kind: str, **facts: Any) -> Any:
        return crate.add(ContextEntity(crate, identifier, {"@type": kind, **facts}))

    root, workflow = crate.root_dataset, crate.mainEntity
    for url, name in PROFILES.items():
        root.append_to("conformsTo", add(url, "CreativeWork", name=name, version=url.rpartition("/")[2]))
    if not manifests or workflow is None:
        return
    order = [name for name in jobs() if any(manifest["job"] == name for manifest in manifests.values())]
    tools, steps = {}, {}
    for position, name in enumerate(order):
        command = f"python -m lmu_scaling {name}"
        tools[name] = add(
            f"#tool-{name}",
            "SoftwareApplication",
            name=command,
            description=jobs()[name].summary,
            softwareVersion=__version__,
        )
        steps[name] = add(f"#step-{name}", "HowToStep", name=name, position=str(position))
        steps[name]["workExample"] = tools[name]
    workflow["step"], workflow["hasPart"] = list(steps.values()), list(tools.values())
    controls = []
    for name, manifest in sorted(manifests.items()):
        if manifest["job"] not in tools:
            continue
        action = crate.add_action(
            instrument=tools[manifest["job"]],
            identifier=f"#{name}",
            object=files(name, manifest["inputs"]),
            result=files(name, manifest["outputs"]),
            properties={
                "name": f"{manifest['job']}: {name}",
                "startTime": manifest["started"],
                "endTime": manifest["ended"],
                "actionStatus": COMPLETED,
            },
        )
        root.append_to("mentions", action)
        control = add(f"#control/{name}", "ControlAction", name=f"step {manifest['job']}: {name}")
        control["instrument"], control["object"] = steps[manifest["job"]], action
        controls.append(control)
    began = min(manifest["started"] for manifest in manifests.values())
    ended = max(manifest["ended"] for manifest in manifests.values())
    run = crate.add_action(
        instrument=workflow,
        identifier="#run",
        result=products,
        properties={"name": "the whole workflow", "startTime": began, "endTime": ended, "actionStatus": COMPLETED},
    )
    root.append_to("mentions", run)
    organise = add(
        "#organise", "OrganizeAction", name="Snakemake's run of the workflow", startTime=began, endTime=ended
    )
    organise["instrument"] = add("#snakemake", "SoftwareApplication", **ENGINE)
    organise["object"], organise["result"] = controls, run
