"""Memory and time of the global decisions (duplicates, subsample) at OpenWebText2's 17 million documents.

    python -m benchmarks.duplicates --documents 1000000 17000000 --scratch data/synthetic

The parts' signature files are made of random numbers with planted copies (3 % exact, 3 % near: 10 % of the MinHash
values differ), which cost the same as real ones; then `deduplicate` runs in a process of its own on them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.data import SPLIT, machine, run, verb
from benchmarks.harness import publish
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
        n = documents * (part + 1) // parts - documents * part // parts
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
    source.write_text(json.dumps({"members": [{"size": 1}], "expected_documents": None}))
    flags = ["--settings", json.dumps(settings), "--source", source, "--parts", root / "parts", "--out", root]
    facts = run(verb("deduplicate", *flags))
    rows = json.loads((root / "manifest.json").read_text())["filters"]
    return facts | {row["filter"]: row["dropped_documents"] for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[1_000_000, 17_000_000])
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--scratch", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    for documents in args.documents:
        root = Path(tempfile.mkdtemp(dir=args.scratch)).resolve()
        try:
            make_parts(root / "parts", documents, args.parts)
            disk = sum(p.stat().st_size for p in (root / "parts").iterdir())
            for filters in ([EXACT], [EXACT, NEAR]):
                facts = decide(root, args.parts, filters, documents * 500)
                row = {"documents": documents, "filters": " + ".join(f["name"] for f in filters)}
                row |= {"peak_mb": round(facts["rss"] / 1e6), "bytes_per_document": round(facts["rss"] / documents)}
                row |= {
                    "cpu_s": round(facts["cpu"], 1),
                    "wall_s": round(facts["wall"], 1),
                    "signatures_gb": round(disk / 1e9, 2),
                }
                row |= {"exact_found": facts["exact_duplicates"], "near_found": facts.get("near_duplicates")}
                rows.append(row | {"planted_each": sum(int(n * COPIES) for n in sizes(documents, args.parts))})
                print(rows[-1], flush=True)
        finally:
            shutil.rmtree(root)
    notes = ["random signatures with planted copies; peak memory of the process that decides"]
    result = {"title": "Duplicates at the size of OpenWebText2", "columns": list(rows[0]), "rows": rows, "notes": notes}
    publish("duplicates", [result | {"machine": machine()}])


def sizes(documents: int, parts: int) -> list[int]:
    return [documents * (i + 1) // parts - documents * i // parts for i in range(parts)]


if __name__ == "__main__":
    main()
