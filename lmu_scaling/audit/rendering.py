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
    for title, found in (("mismatches", record["mismatches"]), ("notes", record["notes"])):
        if found:
            lines.append(f"{title}:")
            lines += [f"  - {entry['where']}: {entry['what']}" for entry in found[:SHOWN]]
            lines += [f"  … and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    if record["uncovered"]:
        listed = ", ".join(record["uncovered"][:SHOWN]) + (" …" if len(record["uncovered"]) > SHOWN else "")
        lines.append(f"not covered by any checksum ({len(record['uncovered'])}): {listed}")
    lines.append(f"verdict: {record['verdict']}; fingerprint of all files: {record['root'][:16]}")
    return "\n".join(lines)


def _mark(check: dict[str, Any]) -> str:
    if check["mismatches"]:
        return f"[{check['mismatches']} mismatch{'es' * (check['mismatches'] > 1)}]"
    return "[note]" if check["notes"] else "[ok]"


def markdown(record: dict[str, Any]) -> str:
    rows = [f"| {check['description']} | {check['mismatches']} | {check['notes']} |" for check in record["checks"]]
    lines = [
        f"# Audit of {record['experiment']}",
        "",
        f"Verdict: **{record['verdict']}**, {record['time']}. {record['files']} files, {record['bytes']:,} bytes, "
        f"{record['manifests']} manifests, {record['runs']} runs.",
        "",
        f"Fingerprint of all files: `{record['root']}`",
        "",
        "| check | mismatches | notes |",
        "|---|---|---|",
        *rows,
        "",
        "## Mismatches",
        "",
        *(_list(record["mismatches"])),
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
