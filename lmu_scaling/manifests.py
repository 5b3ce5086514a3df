"""Manifests: the provenance of a job's outputs, written beside them as `*.manifest.json`.

A manifest lists every input and output with size and sha256, the command, the code, the environment, and the facts
that the job reports (spec, seed, tokens, FLOPs). Its seal, a hash of all other entries, lets the audit detect a change
in the manifest itself. Nothing here imports torch.

Paths are relative to the manifest's folder, so that results can be moved. A file of the repository is named relative
to its root (`"in": "repository"`), and any other file by its name alone (`"in": "elsewhere"`): no machine path.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ResultsError
from lmu_scaling.fingerprint import module_hashes
from lmu_scaling.paths import LOCK, REPOSITORY
from lmu_scaling.redaction import redact_json
from lmu_scaling.runtime import atomic_write, canonical_json, sha256_bytes, sha256_file

AFFECTS_RESULTS = False
FORMAT = 3
SUFFIX = ".manifest.json"
# Folders of outputs; all other files in the repository are sources.
PRODUCTS = ("results", "paper_figures")
# What decides a result; a file in one of these that git does not know counts as an uncommitted change.
SOURCES = ("Snakefile", "config.yaml", "lmu_scaling", "workflow", "profiles", "envs", "requirements.lock")
PACKAGES = ("torch", "numpy", "scipy", "pandas", "pyarrow", "tiktoken", "safetensors", "matplotlib", "datasets")


def write_manifest(
    path: str | Path,
    *,
    job: str,
    inputs: dict[str, list[Path]],
    outputs: dict[str, list[Path]],
    started: float,
    seconds: float,
    code: str,
    command: Sequence[str] | None = None,
    facts: dict[str, Any] | None = None,
    known: Mapping[str, str] | None = None,
) -> None:
    """Record a job. `seconds` must come from a monotonic clock, because the system clock may be set back.

    `known`: sha256 of inputs that were verified before the job, and of outputs that it hashed while it wrote them and
    verified afterwards.
    """
    path = Path(path)
    write_sealed(
        path,
        redact_json(
            {
                "format": FORMAT,
                "job": job,
                "command": ["python", "-m", "lmu_scaling", *(sys.argv[1:] if command is None else command)],
                "code": code,
                "sources": module_hashes(name for name in sys.modules if name.startswith("lmu_scaling.")),
                "git": git_state(),
                "environment": environment(),
                "started": utc(started),
                "ended": utc(started + seconds),
                "seconds": round(seconds, 3),
                "inputs": _digests(inputs, path, known or {}),
                "outputs": _digests(outputs, path, known or {}),
                **(facts or {}),
            }
        ),
    )


# ------------------------------------------------------------------------------------------------------------- seal
def render(value: Any) -> str:
    """The only valid text of a sealed file, so that any changed byte is detected."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def seal(value: dict[str, Any]) -> str:
    return sha256_bytes(canonical_json({k: v for k, v in value.items() if k != "seal"}).encode())


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "seal": seal(value)}


def write_sealed(path: str | Path, value: dict[str, Any]) -> None:
    with atomic_write(path) as file:
        file.write(render(sealed(value)))


def read_sealed(path: str | Path) -> dict[str, Any]:
    """Read a sealed file; raise ResultsError if any byte was changed after writing."""
    remedy = "the file was changed after it was written: restore it, or run the job that made it again"
    try:
        text = Path(path).read_bytes().decode("utf-8")
        value = json.loads(text)
        valid = isinstance(value, dict) and value.get("seal") == seal(value) and render(value) == text
    except (ValueError, OSError, RecursionError) as error:
        raise ResultsError(f"unreadable: {error}", str(path), remedy) from error
    if not valid:
        raise ResultsError("its seal does not match its content", str(path), remedy)
    return value


# ---------------------------------------------------------------------------------------------------------- digests
def _digests(
    groups: dict[str, list[Path]], manifest: Path, known: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    return {name: [digest(path, manifest, known) for path in paths if path.is_file()] for name, paths in groups.items()}


def digest(path: Path, manifest: Path, known: Mapping[str, str] | None = None) -> dict[str, Any]:
    sha256 = (known or {}).get(str(path)) or sha256_file(path)
    return {**locate(path, manifest), "bytes": path.stat().st_size, "sha256": sha256}


def locate(path: Path, manifest: Path) -> dict[str, str]:
    """A file's path in a manifest. Symbolic links are not resolved: `results` may be a link to a larger disk."""
    here, home = absolute(path), absolute(manifest).parent
    base = _base(home)
    if here.is_relative_to(base) and (base == home or here.relative_to(base).parts[0] in PRODUCTS):
        return {"path": os.path.relpath(here, home)}
    if here.is_relative_to(REPOSITORY):
        return {"path": here.relative_to(REPOSITORY).as_posix(), "in": "repository"}
    return {"path": here.name, "in": "elsewhere"}


def absolute(path: str | Path) -> Path:
    """Absolute and without `..`; symbolic links are not resolved."""
    return Path(os.path.normpath(Path(path).absolute()))


def _base(home: Path) -> Path:
    """The parent of `results/` and `paper_figures/`, from a manifest's folder."""
    for folder in (home, *home.parents):
        if folder.name in PRODUCTS:
            return folder.parent
    return home


def find(entry: dict[str, Any], manifest: Path) -> Path | None:
    """The inverse of `locate`; None for a file outside results and repository."""
    place = entry.get("in")
    if place == "elsewhere":
        return None
    home = REPOSITORY if place == "repository" else absolute(manifest).parent
    return absolute(home / entry["path"])


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# ------------------------------------------------------------------------------------------------------ environment
@functools.cache
def git_state() -> dict[str, Any]:
    """Commit, and whether the sources differ from it: edited, or new and not ignored. Empty outside a clone."""
    try:
        run = functools.partial(subprocess.run, cwd=REPOSITORY, capture_output=True, text=True, timeout=10, check=True)
        commit = run(["git", "rev-parse", "HEAD"]).stdout.strip()
        changed = run(["git", "status", "--porcelain", "--untracked-files=normal", "--", *SOURCES]).stdout
        edited = run(["git", "status", "--porcelain", "--untracked-files=no"]).stdout
        dirty = bool(changed.strip() or edited.strip())
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "dirty": dirty}


@functools.cache
def environment() -> dict[str, Any]:
    """Versions and hardware; no host name, no user name, no environment variable."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "lock": lock_hash(),
        "packages": dict(_versions()),
    }
    if driver := _cuda_driver():
        facts["cuda_driver"] = driver
    torch = sys.modules.get("torch")  # imported already, if the job used it
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
    native = sys.modules.get("lmu_scaling.models.native")
    if native is not None and native.kernels.cache_info().currsize:  # they were asked for; a GPU has its own, in torch
        facts["cpu_kernels"] = "compiled" if native.kernels() is not None else "torch"
        facts["cpu_vectors"] = ("portable", "AVX-512", "AVX512-BF16")[native.vectors()]  # of the loss
    if torch is not None and torch.cuda.is_available():
        facts["cuda"] = torch.version.cuda
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def lock_hash() -> str | None:
    return sha256_file(LOCK)[:16] if LOCK.is_file() else None


def _versions() -> list[tuple[str, str]]:
    found = []
    for name in PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cuda_driver() -> str:
    """From the kernel module: loading a library would take a light job a second."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    return next((word for word in text.split() if word.count(".") >= 1 and word.replace(".", "").isdigit()), "")


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
