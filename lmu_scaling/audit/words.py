"""Audit and plan in words: for the terminal and as Markdown."""

from __future__ import annotations

from typing import Any

from lmu_scaling.runtime import duration, si

SHOWN = 20


def summary(record: dict[str, Any]) -> str:
    """What a person reads at the end of a run."""
    lines = [
        f"audit of {record['experiment']}: {record['files']} files ({size(record['bytes'])}), "
        f"{record['manifests']} manifests, {record['runs']} runs"
    ]
    lines += [f"  {_mark(check)} {check['promise']}" for check in record["checks"]]
    for title, found in (("mismatches", record["mismatches"]), ("notes", record["notes"])):
        if found:
            lines.append(f"{title}:")
            lines += [f"  - {entry['where']}: {entry['what']}" for entry in found[:SHOWN]]
            lines += [f"  … and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    if record["uncovered"]:
        listed = ", ".join(record["uncovered"][:SHOWN]) + (" …" if len(record["uncovered"]) > SHOWN else "")
        lines.append(f"not covered by any checksum ({len(record['uncovered'])}): {listed}")
    lines.append(f"verdict: {record['verdict']}; fingerprint of the whole: {record['root'][:16]}")
    return "\n".join(lines)


def _mark(check: dict[str, Any]) -> str:
    if check["mismatches"]:
        return f"[{check['mismatches']} mismatch{'es' * (check['mismatches'] > 1)}]"
    return "[note]" if check["notes"] else "[ok]"


def markdown(record: dict[str, Any]) -> str:
    rows = [f"| {check['promise']} | {check['mismatches']} | {check['notes']} |" for check in record["checks"]]
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


# -------------------------------------------------------------------------------------------------------------- plan
HEADER = ("stage", "rule", "jobs", "done", "tokens", "FLOPs", "each, at most", "in all", "memory")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    flops = f"{row['flops']:.2e}" if row["flops"] else ""
    tokens = si(row["tokens"]) if row["tokens"] else ""
    times = (duration(row["longest"]), duration(row["seconds"]))
    return (row["stage"], row["rule"], str(row["jobs"]), str(row["done"]), tokens, flops, *times, f"{row['mem_mb']} MB")


def size(count: float) -> str:
    """Bytes as disks are sold: 29344276480 → '29.3 GB'."""
    for bound, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= bound:
            return f"{count / bound:.3g} {unit}"
    return f"{count:.0f} bytes"


def _sentences(record: dict[str, Any]) -> list[str]:
    disk, data = record["disk"], record["data"]
    known = "counted" if data["known"] else "estimated"
    source = "measured here in a rehearsal" if record["rehearsed"] else "from the stated utilisation"
    times = [duration(record[f"{which}_seconds"]) for which in ("total", "remaining", "chain")]
    lines = [
        f"Training: {si(record['tokens'])} tokens; with evaluation {record['flops']:.2e} FLOPs; hours {source}.",
        f"Data: {si(data['kept_tokens'])} tokens ({known}) out of {size(data['text_bytes'])} of text.",
        f"Disk: {size(disk['peak'])} at the peak, {size(disk['kept'])} kept, {size(disk['download'])} of downloads; "
        f"{size(disk['present'])} are there already, {size(disk['free'])} are free.",
        f"Time: {times[0]} of device time, {times[1]} still to do; the longest chain of trainings takes {times[2]}.",
    ]
    return lines + [_on_device(entry) for entry in record["accelerators"]]


def _on_device(entry: dict[str, Any]) -> str:
    price = f", {entry['price']:,.0f} at the configured price" if entry["price"] else ""
    fits = f"micro-batch {entry['micro_batch']}" if entry["micro_batch"] else "too little memory for the largest model"
    return (
        f"{entry['name']}: {entry['hours']:,.2f} device hours at {entry['utilisation']:.0%} utilisation "
        f"({entry['remaining_hours']:,.2f} to do; longest run {entry['longest_hours']:,.2f} h{price}; {fits})."
    )


def plan_text(record: dict[str, Any]) -> str:
    rows = [HEADER, *(_cells(row) for row in record["rows"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(_pad(row[i], widths[i], i) for i in range(len(HEADER))) for row in rows]
    return "\n".join([f"plan of {record['experiment']}", *lines, *_sentences(record)])


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def plan_markdown(record: dict[str, Any]) -> str:
    rows = [f"| {' | '.join(_cells(row))} |" for row in record["rows"]]
    head = [f"# Plan of {record['experiment']}", "", f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    return "\n".join([*head, *rows, "", *(f"- {line}" for line in _sentences(record))]) + "\n"
