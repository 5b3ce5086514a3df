"""The job `bundle`: one zip file to publish, described as an RO-Crate, that anybody can verify after unpacking.

It holds `results/<experiment>/`, `paper_figures/` and the program. The audit verifies the zip file itself
(`python -m lmu_scaling audit <experiment>.crate.zip`), and works in the unpacked folder. Token shards are left out by
default (the texts belong to their authors); `bundle.json` lists omitted files with their checksums. The same results
give the same bytes.
"""

from __future__ import annotations

import json
import mimetypes
import zipfile
from pathlib import Path
from typing import Any

from lmu_scaling.audit.audit import examine
from lmu_scaling.audit.provenance import CONTEXT, WORKFLOW, describe_run
from lmu_scaling.audit.results_folder import (
    BUNDLE,
    FIGURES,
    LOCK_FILES,
    UNRECORDED,
    ResultsFolder,
    default_figures,
)
from lmu_scaling.errors import AuditError
from lmu_scaling.jobs import Folder, Output, job
from lmu_scaling.manifests import render, sealed
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.runtime import atomic_write, byte_size, sha256_bytes, sha256_file

METADATA = "ro-crate-metadata.json"
PAGE, CLAIMS = "report.html", "analysis/claims.json"  # what the workflow is run for
PROGRAM = ("Snakefile", "config.yaml", "LICENSE", "CITATION.cff", "README.md", "requirements.lock", "pyproject.toml")
PROGRAM_FOLDERS = ("lmu_scaling", "workflow", "profiles", "envs")
PAPER = "https://arxiv.org/abs/2110.02402"
TITLE = "Language Modeling using LMUs: 10x Better Data Efficiency or Improved Scaling Compared to Transformers"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date of the format, for all files: the same results, the same bytes
MIME = {
    ".safetensors": "application/octet-stream",
    ".parquet": "application/vnd.apache.parquet",
    ".md": "text/markdown",
}


@job
def bundle(
    results: Folder,
    /,
    out: Output,
    figures: Folder | None = None,
    without_weights: bool = False,
    without_sequences: bool = False,
    with_tokens: bool = False,
) -> dict[str, Any]:
    """Verify results and pack them for publication, as an RO-Crate.

    Args:
        results: folder results/<experiment>
        out: the zip file
        figures: folder paper_figures; default: the one beside results/
        without_weights: leave the weights out
        without_sequences: leave the losses of single test sequences out, most of what remains without weights
        with_tokens: pack the token shards, if you may publish the texts
    """
    folder = ResultsFolder(results, figures or default_figures(results))
    record = examine(folder, sample=0)
    if record["mismatches"]:
        first = record["mismatches"][0]
        raise AuditError(
            f"these results fail the audit: {first['where']}: {first['what']}",
            str(results),
            "run `snakemake audit`, repair the files it names, then bundle",
        )
    files, left_out = select_files(folder, without_weights, with_tokens, without_sequences)
    home = f"results/{folder.experiment}"
    packed = {(name if name.startswith(f"{FIGURES}/") else f"{home}/{name}"): path for name, path in files.items()}
    packed |= program_files()
    texts = {f"{home}/{BUNDLE}": render(sealed({"experiment": folder.experiment, "left_out": left_out}))}
    texts[METADATA] = metadata(folder, packed, texts, record)
    _write(out, packed, texts)
    count = len(packed) + len(texts)
    print(f"{out}: {count} files, {byte_size(out.stat().st_size)}; {len(left_out)} left out", flush=True)
    return {"files": count, "left_out": len(left_out), "root": record["root"]}


def select_files(
    folder: ResultsFolder, without_weights: bool, with_tokens: bool, without_sequences: bool = False
) -> tuple[dict[str, Path], dict[str, str]]:
    """Files to pack, and files to leave out with their checksums."""
    packed, left_out = {}, {}
    for name, path in folder.files.items():
        weights = name.endswith("/weights.safetensors") and without_weights
        sequences = name.endswith("/sequences.parquet") and without_sequences
        tokens = name.startswith("tokens/") and name.endswith(".bin") and not with_tokens
        local = name == "corpus/source.json"  # it contains paths of this machine
        scratch = name in UNRECORDED or "/live/" in name or local
        if weights or sequences or tokens or scratch:
            left_out[name] = folder.sha256(name)
        elif name not in (BUNDLE, *LOCK_FILES):
            packed[name] = path
    return packed, left_out


def program_files() -> dict[str, Path]:
    """The present code, which verifies the results; the audit notes if other code made them."""
    found = {name: REPOSITORY / name for name in PROGRAM if (REPOSITORY / name).is_file()}
    for folder in PROGRAM_FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*")):
            inside = path.relative_to(REPOSITORY)
            if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in inside.parts):
                found[inside.as_posix()] = path
    return found


# ---------------------------------------------------------------------------------------------------------- RO-Crate
def metadata(folder: ResultsFolder, packed: dict[str, Path], texts: dict[str, str], record: dict[str, Any]) -> str:
    """Every file with type, size and checksum; every job as an action with its inputs and outputs."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")  # the one that the profiles build on
    crate.metadata.extra_terms["sha256"] = "https://schema.org/sha256"
    crate.metadata.extra_contexts.append(CONTEXT)
    crate.root_dataset.properties().pop("datePublished", None)
    crate.name = f"Replication of 'Language Modeling using LMUs', experiment {folder.experiment}"
    crate.description = (
        f"{record['runs']} training runs, their evaluations, fits, figures and verdicts. Verify with "
        f"`python -m lmu_scaling audit results/{folder.experiment}`. Fingerprint of all results: {record['root']}"
    )
    crate.root_dataset["datePublished"] = folder.record.get("time", record["time"])
    crate.license = "LICENSE" if "LICENSE" in packed else "see the program's licence"
    crate.isBasedOn = crate.add(ContextEntity(crate, PAPER, {"@type": "ScholarlyArticle", "name": TITLE}))
    entities = {}
    for name in sorted({**packed, **texts}):
        facts = _facts(name, packed, texts)
        if name == "Snakefile":
            crate.add_workflow(packed[name], name, main=True, lang="snakemake", properties={**facts, "@type": WORKFLOW})
        else:
            entities[name] = crate.add_file(packed.get(name, name), dest_path=name, properties=facts)
    _actions(crate, folder, entities)
    return json.dumps(_stable(crate.metadata.generate()), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _facts(name: str, packed: dict[str, Path], texts: dict[str, str]) -> dict[str, Any]:
    kind = MIME.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "text/plain"
    data = texts[name].encode() if name in texts else None
    length = len(data) if data is not None else packed[name].stat().st_size
    checksum = sha256_bytes(data) if data is not None else sha256_file(packed[name])
    return {"encodingFormat": kind, "contentSize": str(length), "sha256": checksum}


def _actions(crate: Any, folder: ResultsFolder, entities: dict[str, Any]) -> None:
    """Every job as an action, in the words of the Provenance Run Crate profile."""
    home = f"results/{folder.experiment}"

    def named(manifest: str, group: dict[str, list[dict[str, Any]]]) -> list[Any]:
        names = [folder.name_of(entry, manifest) for entries in group.values() for entry in entries]
        places = [n if n.startswith(f"{FIGURES}/") else f"{home}/{n}" for n in names if n]
        return [entities[place] for place in dict.fromkeys(places) if place in entities]

    products = [entity for name, entity in entities.items() if name in {f"{home}/{PAGE}", f"{home}/{CLAIMS}"}]
    describe_run(crate, folder.manifests, named, products)


def _stable(content: dict[str, Any]) -> dict[str, Any]:
    """Entities in a fixed order."""
    return {**content, "@graph": sorted(content["@graph"], key=lambda entity: entity["@id"])}


def _write(out: Path, packed: dict[str, Path], texts: dict[str, str]) -> None:
    with atomic_write(out, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted({**packed, **texts}):
            entry = zipfile.ZipInfo(name, ZIP_DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            if name in texts:
                archive.writestr(entry, texts[name])
                continue
            with open(packed[name], "rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                while block := source.read(1 << 20):
                    target.write(block)
