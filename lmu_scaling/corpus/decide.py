"""The global decisions: duplicates and the subsample. Reads every part's signatures, writes one byte per document.

drops.npy       uint8 per document of all parts in order: 0 keep, 1 exact duplicate, 2 near duplicate, 3 subsample
report.csv      per filter, in order: documents and bytes it dropped and left
manifest.json   source, settings, totals, where each part begins in drops.npy
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lmu_scaling.corpus.accounts import check_bad_share
from lmu_scaling.corpus.arrays import whole
from lmu_scaling.corpus.duplicates import exact_duplicates, near_duplicates, near_settings
from lmu_scaling.corpus.filters import COMPARES_DOCUMENTS, document_filters
from lmu_scaling.corpus.layout import part_files
from lmu_scaling.corpus.report import report_rows, write_report
from lmu_scaling.corpus.split import SPLITS, split_of, subsample
from lmu_scaling.errors import CorpusError
from lmu_scaling.runtime import atomic_write, read_json, write_json

COUNTED = ("documents", "bytes", "kept_documents", "dropped", "bad", "bad_bytes", "bad_examples")
DROP_CODES = {"exact_duplicates": 1, "near_duplicates": 2, "subsample": 3}


def deduplicate(settings: Any, source: Path, parts: Path, out: Path) -> dict[str, Any]:
    """Decide for every document of the parts in folder `parts`; write drops, report and manifest to folder `out`."""
    described = read_json(source, "source", "identity", "members")
    files = [part_files(parts, i) for i in range(settings.parts)]
    counts = [read_json(f["counts"], *COUNTED) for f in files]
    if not any(part["documents"] for part in counts):
        examples = [example for part in counts for example in part["bad_examples"]]
        where = examples[0] if examples else str(described.get("path") or described["source"])
        raise CorpusError("the source has no document that can be read", where, "see docs/data.md for what is read")
    unreadable = check_bad_share(counts, described, settings.max_bad_share)
    signatures = [f["signatures"] for f in files]
    hashes, tokens, sizes = (_gather(signatures, name) for name in ("hash", "tokens", "bytes"))
    drops = _decide(settings, signatures, hashes, tokens)
    if not np.any(drops == 0):
        raise CorpusError("no document is left", str(source), "loosen corpus.filters or raise corpus.target_tokens")
    with atomic_write(Path(out) / "drops.npy", "wb") as file:
        np.save(file, drops)
    names = [name for name, _ in document_filters(settings.filters)]
    late = [item.name for item in settings.filters if item.name in COMPARES_DOCUMENTS]
    late += ["subsample"] if settings.target_tokens else []
    rows = report_rows(counts, names, late, {name: drops == DROP_CODES[name] for name in late}, sizes)
    write_report(Path(out) / "report.csv", rows)
    manifest = {
        "source": {key: described.get(key) for key in ("source", "kind", "identity", "size", "sha256", "licence")},
        "expected_documents": described.get("expected_documents"),
        "read_documents": sum(part["documents"] for part in counts),
        "warnings": _warnings(described.get("expected_documents"), counts),
        **unreadable,
        "unreadable_examples": [example for part in counts for example in part["bad_examples"]][:20],
        "kept": _totals(drops == 0, tokens, sizes),
        "splits": _split_totals(settings.split, drops == 0, hashes, tokens, sizes),
        "parts": _places(counts),
        "filters": rows,
    }
    write_json(Path(out) / "manifest.json", manifest)
    return {"read_documents": manifest["read_documents"], **manifest["kept"]}


def _warnings(expected: int | None, counts: list[dict[str, Any]]) -> list[str]:
    """The catalogue's count of documents is hearsay, so another count is said and not refused."""
    found = sum(part["documents"] + sum(part["bad"].values()) for part in counts)
    if expected is None or found == expected:
        return []
    return [f"the source holds {found:,} documents, the catalogue says {expected:,}"]


def _gather(signatures: list[Path], name: str) -> np.ndarray:
    arrays = []
    for path in signatures:
        with whole(path), np.load(path) as part:
            arrays.append(part[name])
    return np.concatenate(arrays)


def _decide(settings: Any, signatures: list[Path], hashes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    drops = np.zeros(len(hashes), np.uint8)
    for item in settings.filters:
        if item.name == "exact_duplicates":
            # A text dropped before would drop its copies too, so that order cannot matter.
            drops[exact_duplicates(hashes) & (drops == 0)] = DROP_CODES[item.name]
        elif item.name == "near_duplicates":
            drops[near_duplicates(signatures, drops == 0, near_settings([item]))] = DROP_CODES[item.name]
    drops[subsample(hashes, tokens, drops == 0, settings.target_tokens)] = DROP_CODES["subsample"]
    return drops


def _places(counts: list[dict[str, Any]]) -> list[dict[str, int]]:
    starts = np.cumsum([0] + [part["kept_documents"] for part in counts])
    return [{"first": int(starts[i]), "documents": part["kept_documents"]} for i, part in enumerate(counts)]


def _totals(mask: np.ndarray, tokens: np.ndarray, sizes: np.ndarray) -> dict[str, int]:
    chosen = {"documents": mask, "tokens": tokens[mask], "bytes": sizes[mask]}
    return {name: int(values.sum(dtype=np.int64)) for name, values in chosen.items()}


def _split_totals(shares: Any, kept: np.ndarray, hashes: np.ndarray, tokens: np.ndarray, sizes: np.ndarray) -> dict:
    split = split_of(hashes, shares)
    return {name: _totals(kept & (split == i), tokens, sizes) for i, name in enumerate(SPLITS)}
