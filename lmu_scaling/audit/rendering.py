"""The audit's outcome as text for the terminal and as Markdown."""

from __future__ import annotations

from typing import Any

from lmu_scaling.runtime import byte_size

SHOWN = 20


def summary(record: dict[str, Any]) -> str:
    lines = [
        f"audit of {record['experiment']}: {record['files']} files ({byte_size(record['bytes'])}), "
        f"{record['manifests']} manifests, {record['runs']} runs"
    ]
    lines += [f"  {_mark(check)} {check['description']}" for check in record["checks"]]
    titles = (("mismatches", "mismatches"), ("not checked", "unseen"), ("notes", "notes"))
    for title, found in ((title, record[key]) for title, key in titles):
        if found:
            lines.append(f"{title}:")
            lines += [f"  - {entry['where']}: {entry['what']}" for entry in found[:SHOWN]]
            lines += [f"  … and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    if record["uncovered"]:
        listed = ", ".join(record["uncovered"][:SHOWN]) + (" …" if len(record["uncovered"]) > SHOWN else "")
        lines.append(f"not covered by any checksum ({len(record['uncovered'])}): {listed}")
    if record["on_trust"]:
        lines.append("on trust, because this audit did not make it again:")
        lines += [f"  - {text}" for text in record["on_trust"]]
    lines.append(f"verdict: {record['verdict']}; fingerprint of all files: {record['root'][:16]}")
    return "\n".join(lines)


def _mark(check: dict[str, Any]) -> str:
    if check["mismatches"]:
        return f"[{check['mismatches']} mismatch{'es' * (check['mismatches'] > 1)}]"
    if check["unseen"]:
        return "[not all seen]"
    return "[note]" if check["notes"] else "[ok]"


def markdown(record: dict[str, Any]) -> str:
    rows = [f"| {c['description']} | {c['mismatches']} | {c['unseen']} | {c['notes']} |" for c in record["checks"]]
    lines = [
        f"# Audit of {record['experiment']}",
        "",
        f"Verdict: **{record['verdict']}**, {record['time']}. {record['files']} files, {record['bytes']:,} bytes, "
        f"{record['manifests']} manifests, {record['runs']} runs.",
        "",
        f"Fingerprint of all files: `{record['root']}`",
        "",
        "| check | mismatches | not checked | notes |",
        "|---|---|---|---|",
        *rows,
        "",
        "## Mismatches",
        "",
        *(_list(record["mismatches"])),
        "",
        "## Not checked",
        "",
        *(_list(record["unseen"])),
        "",
        "## On trust",
        "",
        *([f"- {text}" for text in record["on_trust"]] or ["Nothing."]),
        "",
        "## Notes",
        "",
        *(_list(record["notes"])),
        "",
        "## Files without a manifest",
        "",
        "They are in the inventory of `audit.json`, which the next audit compares with.",
        "",
        *([f"- `{name}`" for name in record["uncovered"]] or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def _list(found: list[dict[str, str]]) -> list[str]:
    return [f"- `{entry['where']}`: {entry['what']}" for entry in found] or ["None."]
