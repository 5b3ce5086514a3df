"""The command line: turns a handler's signature into flags, runs it, writes its manifest and explains its errors.

python -m lmu_scaling <job> --help
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import signal
import sys
import time
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lmu_scaling import __version__
from lmu_scaling.errors import MissingPackage, UserError
from lmu_scaling.jobs import Job, find, jobs
from lmu_scaling.redaction import redact

AFFECTS_RESULTS = False
PROGRAM = "python -m lmu_scaling"
# Flags that every job has: the workflow uses them to record what a job read, wrote and ran.
RECORD = ("manifest", "read", "wrote", "code")
LATE = 120.0  # [s] that a network disk may take to show a file of another machine


def ignore_late_signals() -> None:
    """To be called when a process has nothing left to do but to end.

    Python takes a job's signal handlers away while torch is still being unloaded. A scheduler's SIGTERM would then kill
    a job that has finished, and Snakemake would remove its outputs. Ignored signals stay ignored to the very end.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a job. A user's error is explained in three lines; anything else is a bug and shows its traceback."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        entry = find(_overview().parse_args(words[:1]).job)
        run(entry, words)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "lmu_scaling":
            print(redact(traceback.format_exc()), file=sys.stderr)
            return 1
        print(redact(f"error: {MissingPackage.of(error)}"), file=sys.stderr)
        return MissingPackage.exit_code
    except UserError as error:
        if os.environ.get("LMU_SCALING_TRACEBACK"):
            print(redact(traceback.format_exc()), file=sys.stderr)
        print(redact(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: run the same command to go on", file=sys.stderr)
        return 130
    except Exception:
        print(redact(traceback.format_exc()), file=sys.stderr)
        return 1
    return 0


def run(entry: Job, words: Sequence[str]) -> None:
    """Parse the flags of a job, verify its inputs, call its handler and write its manifest."""
    from lmu_scaling.fingerprint import fingerprint
    from lmu_scaling.manifests import write_manifest
    from lmu_scaling.reuse import clear, confirm, is_current, verified

    record = _record(words)
    main = os.environ.get("RANK", "0") == "0"  # one of several processes speaks for all
    renewed = record["manifest"] and entry.stage != "audit"  # an audit looks at its own earlier outputs
    if renewed and is_current(Path(record["manifest"]), words, record["code"]):
        if main:
            confirm(Path(record["manifest"]))
            print("nothing to do: made before by the same code from the same inputs, and unchanged since", flush=True)
        return
    handler = entry.load()
    arguments, hints = arguments_of(entry, handler, words)
    code = record["code"] or fingerprint(entry.module)
    if "code" in hints:
        arguments["code"] = code
    named = {kind: _files(arguments, hints, kind) for kind in ("input", "output")}
    made = [path for paths in named["output"].values() for path in paths]
    with _alone(arguments, record, words, made) as finished:
        if finished:
            print("another job has finished this run already; nothing to do", flush=True)
            return
        read = named["input"] | _others(record, "read", arguments)
        known = verified([path for paths in read.values() for path in paths]) if main else {}
        if renewed and main:
            clear(made)
        started, clock = time.time(), time.monotonic()
        positional = [arguments[parameter.name] for parameter in entry.parameters if parameter.positional]
        flags = {name: value for name, value in arguments.items() if not entry.is_positional(name)}
        facts = handler(*positional, **flags)
        if record["manifest"] is None or not main:
            return
        extra = dict(facts) if isinstance(facts, dict) else {}
        known |= extra.pop("sha256_of", {})
        write_manifest(
            record["manifest"],
            job=entry.name,
            inputs=named["input"] | _others(record, "read", arguments, extra.pop("read", [])),
            outputs=named["output"] | _others(record, "wrote", arguments, extra.pop("wrote", [])),
            started=started,
            seconds=time.monotonic() - clock,
            code=code,
            command=words,
            facts=extra,
            known=known,
        )


@contextmanager
def _alone(
    arguments: Mapping[str, Any], record: Mapping[str, Any], words: Sequence[str], outputs: Sequence[Path]
) -> Iterator[bool]:
    """For a job with a folder `live`: no second one clears the outputs of this one, or makes them again.

    Yields whether another job has made them meanwhile. What that job wrote may be visible here later than its lock.
    """
    from lmu_scaling.lock import exclusive
    from lmu_scaling.reuse import is_current, key

    if "live" not in arguments or record["manifest"] is None or "RANK" in os.environ:
        yield False
        return
    manifest, done = Path(record["manifest"]), f"finished {key(words, record['code'])}"
    with exclusive(arguments["live"] / "lock", wait=not arguments.get("no_wait")) as lock:
        finished = is_current(manifest, words, record["code"])
        if lock.waited and lock.left == done:
            finished = finished or _appear([*outputs, manifest])
        yield finished
        lock.leave(done)


def _appear(paths: Sequence[Path]) -> bool:
    """Whether these files, which another machine has written, become visible."""
    deadline = time.monotonic() + LATE
    while not (found := all(path.is_file() for path in paths)) and time.monotonic() < deadline:
        any(paths[0].parent.iterdir())  # makes a network disk look again
        time.sleep(0.5)
    return found


def _record(words: Sequence[str]) -> dict[str, Any]:
    """The flags that every job has, read without importing the job."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_record(parser)
    return vars(parser.parse_known_args(list(words[1:]))[0])


def arguments_of(
    entry: Job, handler: Callable[..., Any], words: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A handler's arguments from the words of a command, and the annotations of its parameters."""
    parser = parser_of(entry, handler)
    hints = typing.get_type_hints(handler, include_extras=True)
    parsed = vars(parser.parse_args(_switched_on(entry, hints, words[1:])))
    given = {name: text for name, text in parsed.items() if name not in RECORD}
    return {name: _converted(parser, name, text, hints[name]) for name, text in given.items()}, hints


def _switched_on(entry: Job, hints: dict[str, Any], words: Sequence[str]) -> list[str]:
    """In `audit --full FOLDER` the folder is not the value of --full, for which argparse would take it."""
    if not any(parameter.positional for parameter in entry.parameters):
        return list(words)
    switches = {parameter.flag for parameter in entry.parameters if hints.get(parameter.name) is bool}
    found = []
    for word, after in zip(words, [*words[1:], ""], strict=True):
        found += [word, "True"] if word in switches and after not in ("True", "False") else [word]
    return found


def _overview() -> argparse.ArgumentParser:
    lines = ["jobs, by stage:"]
    for stage in dict.fromkeys(entry.stage for entry in jobs().values()):
        lines.append(f"  {stage}")
        lines += [f"    {e.name:<16} {e.summary}" for e in jobs().values() if e.stage == stage]
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} <job> [flags]   ({PROGRAM} <job> --help lists the flags)",
        description="Replication of 'Language Modeling using LMUs' (arXiv 2110.02402). Each job is one step of the "
        "workflow; `snakemake --cores all` runs them all in order.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(lines),
    )
    parser.add_argument("--version", action="version", version=f"lmu-scaling {__version__}")
    parser.add_argument("job", metavar="<job>")
    return parser


# ------------------------------------------------------------------------------------------------------------ flags
def parser_of(entry: Job, handler: Callable[..., Any]) -> argparse.ArgumentParser:
    """The flags of a job, from its handler's signature."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {entry.name}", description=entry.summary, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hints = typing.get_type_hints(handler, include_extras=True)
    helps = dict(re.findall(r"^ {4,}(\w+): (.+)$", (inspect.getdoc(handler) or "").partition("Args:")[2], re.MULTILINE))
    declared = inspect.signature(handler).parameters
    for parameter in entry.parameters:
        name, default = parameter.name, declared[parameter.name].default
        if name in RECORD:
            continue
        options: dict[str, Any] = {"help": _help(helps.get(name, ""), hints[name], default)}
        if hints[name] is bool:
            options |= {"nargs": "?", "const": True, "metavar": "BOOL"}
        elif _is_list_of_text(hints[name]):
            options["nargs"] = "+" if parameter.required else "*"
        elif role(hints[name]) == "input" and not parameter.required:
            options["nargs"] = "?"  # a rule whose optional input is empty leaves the flag without a value
        if parameter.positional:
            parser.add_argument(name, **options)
            continue
        options |= {"required": True} if parameter.required else {"default": default}
        parser.add_argument(parameter.flag, dest=name, **options)
    _add_record(parser)
    return parser


def _add_record(parser: argparse.ArgumentParser) -> None:
    for key in RECORD:
        many: dict[str, Any] = {"nargs": "*", "default": []} if key in ("read", "wrote") else {"default": None}
        parser.add_argument(f"--{key}", help=argparse.SUPPRESS, **many)


def _help(text: str, hint: Any, default: Any) -> str:
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    parts = [text, f"one of {', '.join(map(str, choices))}" if choices else ""]
    if default is not inspect.Parameter.empty and default is not None and default is not False:
        parts.append(f"default: {default}")
    return "; ".join(part for part in parts if part).replace("%", "%%")


def role(hint: Any) -> str:
    """ "input", "output", "folder", or "" for a setting."""
    if hasattr(hint, "__metadata__"):
        return next((kind for kind in hint.__metadata__ if kind in ("input", "output", "folder")), "")
    return next((found for part in typing.get_args(hint) if (found := role(part))), "")


def _is_list_of_text(hint: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_is_list_of_text(part) for part in typing.get_args(hint))
    plain = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    return plain in (list[str], list[Path])


def _converted(parser: argparse.ArgumentParser, name: str, given: Any, hint: Any) -> Any:
    """A flag's text as the handler's type; JSON where plain text does not fit."""
    if not isinstance(given, str | list) or (given == "None" and type(None) in typing.get_args(hint)):
        return None if given == "None" else given
    adapter = TypeAdapter(hint)
    try:
        return adapter.validate_python(given)
    except ValidationError as first:
        if isinstance(given, str):
            try:
                return adapter.validate_json(given)
            except ValidationError as second:
                first = second if given[:1] in "[{" else first
        problems = "; ".join(problem["msg"] for problem in first.errors()[:3])
        parser.error(f"argument --{name.replace('_', '-')}: {problems} (got {given!r})")


# --------------------------------------------------------------------------------------------------------- manifest
def _files(arguments: dict[str, Any], hints: dict[str, Any], kind: str) -> dict[str, list[Path]]:
    return {name: _paths(value) for name, value in arguments.items() if value and role(hints[name]) == kind}


def _others(
    record: dict[str, Any], key: str, arguments: dict[str, Any], further: Sequence[Any] = ()
) -> dict[str, list[Path]]:
    """Files in folders, named by the rule or by the job (`further`), that no parameter names."""
    named = {str(path) for value in arguments.values() for path in _paths(value)} | {str(record["manifest"])}
    found = [Path(path) for path in [*record[key], *further] if str(path) not in named]
    return {key: found} if found else {}


def _paths(value: Any) -> list[Path]:
    return [path for path in (value if isinstance(value, list) else [value]) if isinstance(path, Path)]
