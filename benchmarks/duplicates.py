"""Memory and time of the global decisions (duplicates, subsample) at OpenWebText2's 17 million documents.

    python -m benchmarks.duplicates --documents 1000000 17000000 --scratch benchmarks/.cache

The parts' signature files are made of random numbers with planted copies (3 % exact, 3 % near: 10 % of the MinHash
values differ), which cost the same as real ones; then `deduplicate` runs in a process of its own on them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data_processes import SPLIT, run, verb
from benchmarks.harness import publish, table
from lmu_scaling.corpus.layout import part_files
from lmu_scaling.corpus.minhash import band_name, bands_and_rows

NEAR = {"name": "near_duplicates", "threshold": 0.8, "permutations": 128, "shingle": 5}
EXACT = {"name": "exact_duplicates"}
COPIES = 0.03


def make_parts(folder: Path, documents: int, parts: int) -> None:
    """Signature files and counts of `parts` parts; copies are of documents in the same part."""
    folder.mkdir(parents=True)
    bands, rows = bands_and_rows(NEAR["threshold"], NEAR["permutations"])
    for part in range(parts):
        rng = np.random.default_rng(part)
        n = sizes(documents, parts)[part]
        hashes = rng.integers(0, 2**64, (n, 2), dtype=np.uint64)
        values = rng.integers(0, 2**32, (n, bands * rows), dtype=np.uint32)
        copies = int(n * COPIES)
        hashes[n - copies :] = hashes[:copies]
        values[n - copies :] = values[:copies]
        near = slice(n - 2 * copies, n - copies)
        changed = rng.random((copies, bands * rows)) < 0.1
        values[near] = np.where(changed, values[near], values[copies : 2 * copies])
        table = {band_name(b): values[:, b * rows : (b + 1) * rows] for b in range(bands)}
        lengths = rng.integers(100, 1700, n).astype(np.uint32)
        files = part_files(folder, part)
        np.savez(files["signatures"], hash=hashes, tokens=lengths, bytes=lengths * np.uint32(4), **table)
        counts = {"documents": n, "bytes": 4, "kept_documents": n, "kept_bytes": 4, "dropped": {}}
        files["counts"].write_text(json.dumps(counts | {"bad": {}, "bad_bytes": 0, "bad_examples": []}))


def decide(root: Path, parts: int, filters: list[dict], target: int) -> dict:
    settings = {"parts": parts, "filters": filters, "split": SPLIT, "target_tokens": target, "max_bad_share": 0.0}
    source = root / "source.json"
    described = {"source": "random", "identity": "random", "members": [{"size": 1}], "expected_documents": None}
    source.write_text(json.dumps(described))
    flags = ["--settings", json.dumps(settings), "--source", source, "--parts", root / "parts", "--out", root]
    facts = run(verb("deduplicate", *flags))
    rows = json.loads((root / "manifest.json").read_text())["filters"]
    return facts | {row["filter"]: row["dropped_documents"] for row in rows}


COLUMNS = ["documents", "filters", "peak MB", "bytes per document", "CPU s", "wall s", "signatures GB"]
COLUMNS += ["exact found", "near found", "planted of each"]
NOTES = [
    "`python -m benchmarks.duplicates`: random signatures with planted copies; memory of the process that decides",
    "near copies differ in 10 % of their MinHash values; a few of them fall below the threshold by chance",
]
LEFT = "signatures on disk cost more than memory; they could be compressed, or written as bands."


def measure(documents: int, parts: int, scratch: Path) -> list[list[Any]]:
    """One row with exact duplicates alone, one with near duplicates too."""
    root = Path(tempfile.mkdtemp(dir=scratch)).resolve()
    rows: list[list[Any]] = []
    try:
        make_parts(root / "parts", documents, parts)
        disk = sum(p.stat().st_size for p in (root / "parts").iterdir())
        for filters in ([EXACT], [EXACT, NEAR]):
            facts = decide(root, parts, filters, documents * 500)
            row = [documents, " + ".join(f["name"] for f in filters), facts["rss"] / 1e6, facts["rss"] / documents]
            row += [facts["cpu"], facts["wall"], disk / 1e9, facts["exact_duplicates"], facts.get("near_duplicates")]
            rows.append([*row, sum(int(n * COPIES) for n in sizes(documents, parts))])
            print(rows[-1], flush=True)
    finally:
        shutil.rmtree(root)
    return rows


def sizes(documents: int, parts: int) -> list[int]:
    return [documents * (i + 1) // parts - documents * i // parts for i in range(parts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[1_000_000, 17_000_000])
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--scratch", type=Path, required=True)
    args = parser.parse_args()
    args.scratch.mkdir(parents=True, exist_ok=True)
    rows = [row for documents in args.documents for row in measure(documents, args.parts, args.scratch)]
    publish("duplicates", [table("Duplicates at the size of OpenWebText2", COLUMNS, rows, NOTES, "cpu")], LEFT)


if __name__ == "__main__":
    main()
