"""The command line: parses a verb's flags, runs its handler, writes its manifest, explains its errors.

python -m lmu_scaling <verb> --help
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmu_scaling.errors import UserError
from lmu_scaling.redaction import redact
from lmu_scaling.verbs import VERBS, Verb, verb


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m lmu_scaling",
        description="Replication of 'Language Modeling using LMUs' (arXiv 2110.02402). Each verb is one step of the "
        "workflow; `snakemake --cores all` runs them all in order.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_overview(),
    )
    verbs = top.add_subparsers(dest="verb", metavar="<verb>", required=True)
    for entry in VERBS:
        sub = verbs.add_parser(
            entry.name, description=f"{entry.help[0].upper()}{entry.help[1:]} (stage {entry.stage})."
        )
        for flag in entry.flags:
            flag.add_to(sub)
        sub.add_argument("--manifest", type=Path, default=None, help="also write what was read, written and run")
        sub.add_argument("--read", type=Path, nargs="*", default=[], help="files in given folders, for the manifest")
        sub.add_argument("--wrote", type=Path, nargs="*", default=[], help="the same for outputs")
        sub.add_argument("--code", default=None, help="fingerprint of the code, as the workflow computed it")
    return top


def _overview() -> str:
    lines = ["verbs, by stage:"]
    for stage in dict.fromkeys(entry.stage for entry in VERBS):
        lines.append(f"  {stage}")
        lines += [f"    {entry.name:<16} {entry.help}" for entry in VERBS if entry.stage == stage]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb. A user's error is explained in three lines; anything else is a bug and shows its traceback."""
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = vars(parser().parse_args(words))
    entry = verb(arguments.pop("verb"))
    try:
        run(entry, words, **arguments)
    except UserError as error:
        if os.environ.get("LMU_SCALING_TRACEBACK"):
            print(redact(traceback.format_exc()), file=sys.stderr)
        print(redact(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception:
        print(redact(traceback.format_exc()), file=sys.stderr)
        return 1
    return 0


def run(
    entry: Verb,
    command: Sequence[str],
    manifest: Path | None = None,
    code: str | None = None,
    read: Sequence[Path] = (),
    wrote: Sequence[Path] = (),
    **arguments: Any,
) -> None:
    from lmu_scaling.manifests import write_manifest
    from lmu_scaling.provenance import fingerprint

    started, clock = time.time(), time.monotonic()
    code = code or fingerprint(entry.module)
    handler = entry.load()
    given = {flag.key: arguments[flag.key] for flag in entry.flags}
    if "code" in handler.__code__.co_varnames[: handler.__code__.co_argcount + handler.__code__.co_kwonlyargcount]:
        given["code"] = code
    facts = handler(**given)
    if manifest is not None and os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
        groups = {
            role: {f.key: _paths(given[f.key]) for f in entry.flags if f.role == role and given[f.key]}
            for role in ("input", "output")
        }
        extra = dict(facts) if isinstance(facts, dict) else {}
        for role, key, paths in (("input", "read", read), ("output", "wrote", wrote)):
            if found := [*paths, *extra.pop(key, [])]:
                groups[role][key] = _paths(found)
        known = extra.pop("sha256_of", {})
        write_manifest(
            manifest,
            verb=entry.name,
            inputs=groups["input"],
            outputs=groups["output"],
            started=started,
            seconds=time.monotonic() - clock,
            code=code,
            command=command,
            facts=extra,
            known=known,
        )


def _paths(value: Any) -> list[Path]:
    return [Path(path) for path in (value if isinstance(value, list) else [value])]
