"""A bundle under audit: its results and figures are unpacked into a temporary folder. Nothing in it is executed."""

from __future__ import annotations

import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from lmu_scaling.audit.results_folder import FIGURES
from lmu_scaling.errors import AuditError

AFFECTS_RESULTS = False
HOMES = ("results", FIGURES)


@contextmanager
def unpacked(results: Path) -> Iterator[Path]:
    """The folder `results` itself; if it is a bundle, its results/<experiment> for as long as the context lasts."""
    if not results.is_file():
        yield results
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        try:
            with zipfile.ZipFile(results) as archive:
                _unpack(archive, home, results)
        except zipfile.BadZipFile as error:
            raise AuditError(
                f"this file is no bundle: {error}",
                str(results),
                "name a folder results/<experiment>, or its .crate.zip",
            ) from error
        experiments = sorted(path for path in home.glob("results/*") if path.is_dir())
        if len(experiments) != 1:
            raise AuditError(
                f"this bundle has {len(experiments)} experiments, not one",
                str(results),
                "make it with `snakemake bundle`",
            )
        yield experiments[0]


def _unpack(archive: zipfile.ZipFile, home: Path, results: Path) -> None:
    """Regular files of results/ and paper_figures/ only; a name that leads elsewhere is refused."""
    wanted = []
    for entry in archive.infolist():
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(entry.external_attr >> 16):
            raise AuditError(f"this bundle has an unsafe entry: {entry.filename!r}", str(results), "do not unpack it")
        if path.parts and path.parts[0] in HOMES:
            wanted.append(entry)
    size, free = sum(entry.file_size for entry in wanted), shutil.disk_usage(home).free
    if size > free:
        raise AuditError(
            f"this bundle needs {size:,} bytes to unpack; {free:,} are free",
            str(home.parent),
            "set TMPDIR to a larger disk",
        )
    for entry in wanted:
        target = home.joinpath(*PurePosixPath(entry.filename).parts)
        if entry.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
