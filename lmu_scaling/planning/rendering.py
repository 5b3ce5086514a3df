"""The plan as text for the terminal and as Markdown."""

from __future__ import annotations

import re
from typing import Any

from lmu_scaling.runtime import byte_size, duration, si

HEADER = ("stage", "rule", "jobs", "done", "tokens", "FLOPs", "longest job", "all jobs", "memory")


def plan_text(record: dict[str, Any]) -> str:
    rows = [HEADER, *(_cells(row) for row in record["rows"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(_pad(row[i], widths[i], i) for i in range(len(HEADER))) for row in rows]
    return "\n".join([f"plan of {record['experiment']}", *lines, *_sentences(record)])


def plan_markdown(record: dict[str, Any]) -> str:
    rows = [f"| {' | '.join(_cells(row))} |" for row in record["rows"]]
    head = [f"# Plan of {record['experiment']}", "", f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    return "\n".join([*head, *rows, "", *(f"- {line}" for line in _sentences(record))]) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    flops = f"{row['flops']:.2e}" if row["flops"] else ""
    tokens = si(row["tokens"]) if row["tokens"] else ""
    times = (duration(row["longest"]), duration(row["seconds"]))
    return (row["stage"], row["rule"], str(row["jobs"]), str(row["done"]), tokens, flops, *times, f"{row['mem_mb']} MB")


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def _sentences(record: dict[str, Any]) -> list[str]:
    disk, data = record["disk"], record["data"]
    known = "counted" if data["known"] else "estimated"
    source = "the throughput measured on this machine" if record["rehearsed"] else "counted FLOPs and bytes"
    times = [duration(record[f"{which}_seconds"]) for which in ("total", "remaining", "critical_path")]
    lines = [
        f"Training: {si(record['tokens'])} tokens; with evaluation {record['flops']:.2e} FLOPs; hours from {source}.",
        f"Data: {si(data['kept_tokens'])} tokens ({known}) from {byte_size(data['text_bytes'])} of text.",
        f"Disk: {byte_size(disk['peak'])} at the peak, {byte_size(disk['kept'])} kept, "
        f"{byte_size(disk['download'])} of downloads; {byte_size(disk['present'])} are used already, "
        f"{byte_size(disk['free'])} are free.",
        f"Time: {times[0]} of device time, {times[1]} remaining; critical path of training: {times[2]}.",
    ]
    lines += [_accelerator(entry) for entry in record["accelerators"]]
    return lines + _verdicts(record["verdicts"], "direct") + _verdicts(record["verdicts"], "conceptual")


def _verdicts(claims: list[dict[str, Any]], kind: str) -> list[str]:
    """The claims that can get this verdict, and what the configuration lacks for the others."""
    lacking = {claim["id"]: dict(_split(reason) for reason in claim[kind]) for claim in claims}
    possible = ", ".join(name for name, reasons in lacking.items() if not reasons)
    head = f"{kind.capitalize()} verdicts (docs/claims.md): {'possible on ' if possible else ''}{possible or 'none'}."
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, reasons in lacking.items():
        if reasons:
            groups.setdefault(tuple(reasons), []).append(name)
    lines = []
    for texts, names in groups.items():
        told = [text.format(_range([lacking[name][text] for name in names])) for text in texts]
        lines.append(f"Not on {', '.join(names)}: {'; '.join(told)}.")
    return [head, *lines]


def _split(reason: str) -> tuple[str, str]:
    """A reason without its first number, which is the measured one, and that number."""
    number = re.search(r"\d[\d,.]*", reason)
    return (reason, "") if number is None else (f"{reason[: number.start()]}{{}}{reason[number.end() :]}", number[0])


def _range(numbers: list[str]) -> str:
    ordered = sorted(numbers, key=lambda text: float(text.replace(",", "") or 0))
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def _accelerator(entry: dict[str, Any]) -> str:
    price = f", {entry['price']:,.0f} at the configured price" if entry["price"] else ""
    fits = f"micro-batch {entry['micro_batch']}" if entry["micro_batch"] else "too little memory for the largest model"
    return (
        f"{entry['name']}: {entry['hours']:,.2f} device hours with {_rates(entry)} "
        f"({entry['remaining_hours']:,.2f} remaining; longest run {entry['longest_hours']:,.2f} h{price}; {fits})."
    )


def _rates(entry: dict[str, Any]) -> str:
    products = f"products at {entry['utilisation']:.0%} of the peak"
    return f"{products} and {entry['bandwidth_gbs']:,.0f} GB/s" if entry["bandwidth_gbs"] else products
