"""Rule `deduplicate`: decide for the whole corpus which documents are duplicates and which the token target leaves out.

Reads every part's signatures and counts, writes

drops.npy        uint8 per document of all parts in order: 0 kept, else the step of report.csv that dropped it
report.csv       per filter, in order: documents and bytes it dropped and left
overlap.csv      share of validation and test that is in training, before filter `containment` and in the end
selection.json   source, totals per split, the filter report, where each part begins in drops.npy
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmu_scaling.corpus.filters import CorpusFilter, Filter, ordered
from lmu_scaling.errors import CorpusError
from lmu_scaling.jobs import Folder, Input, job
from lmu_scaling.runtime import atomic_write, read_json, write_json
from lmu_scaling.sections import AnyFilter, Split
from lmu_scaling.tokens.part_files import SignatureFiles, part_files
from lmu_scaling.tokens.same_text import differences, text_facts
from lmu_scaling.tokens.split import SPLITS, split_of, subsample, totals
from lmu_scaling.tokens.tally import OVERLAP_COLUMNS, check_bad_share, report_rows, write_report

COUNTED = ("documents", "bytes", "kept_documents", "dropped", "bad", "bad_bytes", "bad_examples")


@job
def deduplicate(
    filters: list[AnyFilter],
    parts: int,
    split: Split,
    target_tokens: int | None,
    max_bad_share: float,
    source: Input,
    part_folder: Folder,
    out: Folder,
) -> dict[str, Any]:
    """Decide for the whole corpus which documents are duplicates and which are left out by the token target.

    Args:
        filters: `corpus.filters`, as JSON
        parts: number of parts
        split: shares of train, validation and test, as JSON
        target_tokens: subsample to about this many tokens; null: keep all
        max_bad_share: stop if a larger share of the documents is unreadable
        source: source.json
        part_folder: folder with the parts' files
        out: folder for drops.npy, report.csv, overlap.csv and selection.json
    """
    described = read_json(source, "source", "identity", "members")
    chain = ordered(filters)
    files = [part_files(part_folder, i) for i in range(parts)]
    counts = [read_json(f["counts"], *COUNTED) for f in files]
    examples = [example for part in counts for example in part["bad_examples"]]
    if not any(part["documents"] for part in counts):
        where = examples[0] if examples else str(described.get("path") or described["source"])
        raise CorpusError("the source has no document that can be read", where, "see docs/data.md for what is read")
    unreadable = check_bad_share(counts, described, max_bad_share)
    signatures = SignatureFiles([f["signatures"] for f in files])
    hashes, tokens, sizes = (signatures.all(name) for name in ("hash", "tokens", "bytes"))
    split_index = split_of(hashes, split)
    signatures.add("split", split_index)
    drops, dropped, overlaps = _select(chain, target_tokens, counts, signatures)
    if not np.any(drops == 0):
        counted = ", ".join(f"{name} dropped {documents:,}" for name, (documents, _) in dropped.items() if documents)
        last = [name for name, (documents, _) in dropped.items() if documents][-1:]
        raise CorpusError(
            f"no document is left: {counted or 'nothing was dropped'}",
            str(described.get("path") or described["source"]),
            "raise corpus.target_tokens" if last == ["subsample"] else f"loosen the filter {last[0] if last else ''}",
        )
    with atomic_write(out / "drops.npy", "wb") as file:
        np.save(file, drops)
    rows = report_rows(counts, dropped)
    write_report(out / "report.csv", rows)
    write_report(out / "overlap.csv", overlaps, OVERLAP_COLUMNS)
    text = text_facts(signatures)
    selection = {
        "source": {key: described.get(key) for key in ("source", "kind", "identity", "size", "sha256", "licence")},
        "expected_documents": described.get("expected_documents"),
        "read_documents": sum(part["documents"] for part in counts),
        "text": text,
        "pieces": _pieces(counts),
        "warnings": [
            *_warnings(described.get("expected_documents"), counts),
            *differences(chain, text, described.get("expected_text")),
        ],
        **unreadable,
        "unreadable_examples": examples[:20],
        "kept": totals(drops == 0, tokens, sizes),
        "splits": {name: totals((drops == 0) & (split_index == i), tokens, sizes) for i, name in enumerate(SPLITS)},
        "parts": _places(counts),
        "filters": rows,
        "overlap": overlaps,
    }
    write_json(out / "selection.json", selection)
    return {"read_documents": selection["read_documents"], **selection["kept"]}


def _warnings(expected: int | None, counts: list[dict[str, Any]]) -> list[str]:
    """The catalogue's number of documents is second-hand, so another number is a warning and not an error."""
    found = sum(part["documents"] + sum(part["bad"].values()) for part in counts)
    if expected is None or found == expected:
        return []
    return [f"the source holds {found:,} documents, the catalogue says {expected:,}"]


def _pieces(counts: list[dict[str, Any]]) -> dict[str, int]:
    """What became of paragraphs, summed over parts; empty if no filter looks at them."""
    names = counts[0].get("pieces", {})
    return {name: sum(part["pieces"][name] for part in counts) for name in names}


def _select(
    chain: list[Filter], target_tokens: int | None, counts: list[dict[str, Any]], signatures: SignatureFiles
) -> tuple[np.ndarray, dict[str, tuple[int, int]], list[dict[str, Any]]]:
    """drops.npy, the documents and bytes that each filter and the subsample dropped, and the rows of overlap.csv."""
    hashes, tokens, sizes = (signatures.all(name) for name in ("hash", "tokens", "bytes"))
    drops = np.zeros(len(hashes), np.uint8)
    dropped: dict[str, tuple[int, int]] = {}
    overlaps: list[dict[str, Any]] = []

    def drop(name: str, step: int, mask: np.ndarray) -> None:
        drops[mask] = step
        dropped[name] = (int(mask.sum()), int(sizes[mask].sum(dtype=np.int64)))

    comparing = [item for item in chain if isinstance(item, CorpusFilter)]
    for step, item in enumerate(chain, 1):
        if isinstance(item, CorpusFilter):
            overlaps += [{"when": "before", **row} for row in item.measure(signatures, drops == 0)]
            drop(item.name, step, item.drops(signatures, drops == 0))
        else:  # applied by `encode`
            each = [part["dropped"].get(item.name, [0, 0]) for part in counts]
            dropped[item.name] = (sum(documents for documents, _ in each), sum(size for _, size in each))
    if target_tokens:
        drop("subsample", len(chain) + 1, subsample(hashes, tokens, drops == 0, target_tokens))
    overlaps += [{"when": "after", **row} for item in comparing for row in item.measure(signatures, drops == 0)]
    return drops, dropped, overlaps


def _places(counts: list[dict[str, Any]]) -> list[dict[str, int]]:
    starts = np.cumsum([0] + [part["kept_documents"] for part in counts])
    return [{"first": int(starts[i]), "documents": part["kept_documents"]} for i, part in enumerate(counts)]
