"""Damage is noticed when the workflow starts: which products are no longer as their jobs wrote them.

A file that is missing needs no notice, because `rule all` asks for every file that is kept. Here files that exist are
compared with their manifest, quickly: their size, and their content where they are newer than the manifest. What
changed in silence, with an old date, is found when a job reads it, or by the audit.
"""

from __future__ import annotations

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmu_scaling.errors import UserError
from lmu_scaling.manifests import find, read_sealed
from lmu_scaling.runtime import sha256_file

AFFECTS_RESULTS = False
KEPT = Path(".snakemake/damaged")
INCOMPLETE = Path(".snakemake/incomplete")
MARK = '{"external_jobid": null, "damaged": true}'


class Damage(NamedTuple):
    """A file that is not as the job of `manifest` wrote it."""

    file: str
    what: str
    manifest: str


def damaged(manifests: Iterable[str]) -> list[Damage]:
    """Files that are not as the jobs of these manifests wrote them, as far as a quick look tells."""
    found: list[Damage] = []
    for name in manifests:
        manifest = Path(name)
        if not manifest.is_file():
            continue
        try:
            made = read_sealed(manifest)
            entries = [entry for group in made["outputs"].values() for entry in group]
        except UserError as error:
            found.append(Damage(name, error.what, name))
            continue
        for entry in entries:
            path = find(entry, manifest)
            if path is not None and path.is_file() and (what := _wrong(path, entry, manifest)):
                found.append(Damage(_relative(path), what, name))
    return found


def _wrong(path: Path, entry: Mapping[str, Any], manifest: Path) -> str:
    stat = path.stat()
    if stat.st_size != entry["bytes"]:
        return f"{stat.st_size:,} bytes instead of {entry['bytes']:,}"
    newer = stat.st_mtime_ns > manifest.stat().st_mtime_ns
    return "its content was changed" if newer and sha256_file(path) != entry["sha256"] else ""


def _relative(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def mark(manifests: Iterable[str], found: Sequence[Damage]) -> None:
    """Tell Snakemake which jobs to repeat: it takes the manifest of a damaged file for an incomplete output.

    A mark of an earlier look is removed when the file has been restored since.
    """
    broken = {damage.manifest for damage in found}
    for manifest in manifests:
        place = INCOMPLETE / urlsafe_b64encode(manifest.encode()).decode()
        if manifest in broken:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(MARK, "utf-8")
        elif place.is_file() and place.read_text("utf-8") == MARK:
            place.unlink()


def keep(found: Sequence[Damage]) -> str:
    """Copy damaged files away before their jobs replace them; return a message for the user."""
    for damage in found:
        if Path(damage.file).is_file() and not Path(damage.file).is_absolute():
            target = KEPT / damage.file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(damage.file, target)
    return f"The files as they were found are kept in {KEPT}/."


def describe(found: Sequence[Damage]) -> str:
    lines = [f"  {damage.file}: {damage.what}" for damage in found]
    last = "They are made again, now or, if this command does not ask for them, by `snakemake --cores all`."
    return "\n".join(["Not as their jobs wrote them:", *lines, last])


def omitted(bundle: str, results: str) -> set[str]:
    """Files that the bundle from which these results were unpacked leaves out; none if they were made here."""
    if not Path(bundle).is_file():
        return set()
    try:
        return {f"{results}/{name}" for name in read_sealed(bundle)["left_out"]}
    except (UserError, KeyError):
        return set()
