"""Notes on outputs made by other code, or in another environment, than the present one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from lmu_scaling.audit.results_folder import Finding, ResultsFolder
from lmu_scaling.fingerprint import module_hashes
from lmu_scaling.manifests import SUFFIX, lock_hash

SHOWN = 4


def code(folder: ResultsFolder) -> Iterator[Finding]:
    """Outputs whose code has changed since (comments apart), grouped by the modules that changed."""
    stale: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, manifest in folder.manifests.items():
        now = module_hashes(f"lmu_scaling.{module}" for module in manifest.get("sources", {}))
        changed = tuple(sorted(m for m, meaning in manifest.get("sources", {}).items() if now.get(m) != meaning))
        if changed:
            stale[changed].append(name.removesuffix(SUFFIX))
    for modules, names in stale.items():
        what = f"made by other code than the present; changed modules: {_shortened(modules)}"
        yield Finding("staleness", _shortened(names), what, "note")
    dirty = [name.removesuffix(SUFFIX) for name, m in folder.manifests.items() if m.get("git", {}).get("dirty")]
    if dirty:
        yield Finding("staleness", _shortened(dirty), "made from a working tree with uncommitted changes", "note")


def environments(folder: ResultsFolder) -> Iterator[Finding]:
    """More than one environment in one experiment, or another one than this repository pins."""
    seen = Counter(_environment(manifest) for manifest in folder.manifests.values())
    if len(seen) > 1:
        listing = "; ".join(f"{count} × {environment}" for environment, count in seen.most_common())
        yield Finding("staleness", "environment", f"made in {len(seen)} environments: {listing}", "note")
    locks = {manifest.get("environment", {}).get("lock") for manifest in folder.manifests.values()} - {None}
    if lock_hash() and locks - {lock_hash()}:
        yield Finding("staleness", "environment", "made with another requirements.lock than the present one", "note")


def _environment(manifest: dict[str, Any]) -> str:
    facts = manifest.get("environment", {})
    torch = facts.get("packages", {}).get("torch")
    parts = [f"Python {facts.get('python')}", f"torch {torch}" if torch else "", facts.get("gpu") or facts.get("cpu")]
    return ", ".join(str(part) for part in parts if part) + f", lock {facts.get('lock')}"


def _shortened(names: Any) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
