"""One truth for versions: names are chosen in pyproject.toml, versions and hashes are in the locks.

    python envs/lock.py --resolve   resolve anew with uv -> the locks and envs/*.yaml (`make lock`)
    python envs/lock.py --write     derive envs/*.yaml from the locks
    python envs/lock.py --check     say what is not in step, exit 1 if anything is

    requirements.lock       all that the workflow needs, with torch
    envs/cuda.lock          what torch's CUDA build needs besides; a CPU build needs none of it
    requirements-dev.lock   tests, linters and the optional tools, on top of requirements.lock
    envs/<extra>.yaml       conda environment of a stage: the names of that extra and all that they require, pinned

Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNTIME, DEV, CUDA = ROOT / "requirements.lock", ROOT / "requirements-dev.lock", ROOT / "envs/cuda.lock"
ENVIRONMENTS = {
    "snakemake": "The workflow engine: what the login node needs.",
    "data": "corpus and tokens: download, filter, encode, deduplicate.",
    "train": "training, evaluation and audit: on a GPU node pip brings the CUDA build of torch.",
    "analysis": "analysis and paper: fits, figures, tables, the report.",
}
OLDEST = "3.11"
UV = ("uv", "pip", "compile", "--universal", "--fork-strategy", "fewest", "--generate-hashes", "--no-header", "--quiet")
HOW = "Install: pip install --no-deps --require-hashes -r requirements.lock"
HEADS = {
    RUNTIME: f"# Everything the workflow needs, with hashes, resolved by `make lock`.\n# {HOW}\n",
    CUDA: f"# What torch's CUDA build needs on top of requirements.lock.\n# {HOW} -r envs/cuda.lock\n",
    DEV: f"# Tests, linters and optional tools, on top of requirements.lock.\n# {HOW} -r requirements-dev.lock\n",
}
EVERYWHERE = " ; sys_platform == 'darwin' or sys_platform == 'linux'"  # the systems that are resolved for
PIN = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\\n]+?))?(?: \\)?$")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_cuda(name: str) -> bool:
    return name == "triton" or name.startswith(("nvidia-", "cuda-"))


@dataclass(frozen=True)
class Pin:
    """One entry of a lock: its text with hashes, and the packages that require it."""

    name: str
    version: str
    marker: str | None
    text: str
    required_by: frozenset[str]

    @property
    def line(self) -> str:
        return f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")


def pins(text: str) -> dict[str, Pin]:
    found = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M):
        lines = block.splitlines()
        if lines and (match := PIN.match(lines[0])):
            notes = [line.removeprefix("    #").replace("via", "", 1).strip() for line in lines if "    #" in line]
            parents = frozenset(normal(note) for note in notes if note and "pyproject" not in note)
            pin = Pin(normal(match["name"]), match["version"], match["marker"], block.rstrip() + "\n", parents)
            if pin.name in found:
                raise SystemExit(f"{pin.name} has two versions in one lock; narrow it in pyproject.toml")
            found[pin.name] = pin
    return found


def locked() -> dict[str, Pin]:
    """All pins of the runtime, CUDA included."""
    return pins(RUNTIME.read_text("utf-8")) | pins(CUDA.read_text("utf-8"))


def direct(extra: str) -> list[str]:
    """The names that an extra of pyproject.toml lists itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.match(r"[A-Za-z0-9_.-]+", entry) for entry in project["optional-dependencies"][extra]]
    return sorted(normal(name[0]) for name in names if name)


def closure(names: list[str], known: dict[str, Pin]) -> list[Pin]:
    """These packages and all that they require, by the lock's own notes of who requires whom."""
    reached, before = set(names), set()
    while reached != before:
        before = set(reached)
        reached |= {pin.name for pin in known.values() if pin.required_by & reached}
    if missing := sorted(reached - set(known)):
        raise SystemExit(f"not in requirements.lock: {', '.join(missing)}; run `make lock`")
    return [known[name] for name in sorted(reached)]


def environment(extra: str) -> str:
    """The conda environment of a stage."""
    wanted = direct(extra)
    lines = [f"# {ENVIRONMENTS[extra]}"]
    lines.append(
        f"# Derived from requirements.lock: the names of pyproject.toml's extra `{extra}`, then what they require."
    )
    lines += ["channels: [conda-forge]", "dependencies:", f"  - python={OLDEST}", "  - pip", "  - pip:"]
    found = closure(wanted, locked())
    lines += [f"      - {quoted(pin.line)}" for pin in found if pin.name in wanted]
    lines.append("      # required by these")
    lines += [f"      - {quoted(pin.line)}" for pin in found if pin.name not in wanted]
    return "\n".join(lines) + "\n"


def quoted(line: str) -> str:
    return f'"{line}"' if ";" in line else line


# ---------------------------------------------------------------------------------------------------------- resolve
def resolve() -> None:
    """Resolve the runtime, then the rest on top of it. Pins that still fit are kept; UPGRADE=1 drops them."""
    old = RUNTIME.read_text("utf-8") if RUNTIME.exists() else ""
    old_dev = DEV.read_text("utf-8") if DEV.exists() else ""
    keep = not os.environ.get("UPGRADE")
    runtime = compiled(["workflow"], prefer=old + "\n" + (CUDA.read_text("utf-8") if CUDA.exists() else ""), keep=keep)
    runtime["torch"] = with_local_builds(runtime["torch"], pins(old).get("torch"))
    everything = compiled(["workflow", "dev"], prefer=old_dev, fixed=runtime, keep=keep)
    write(RUNTIME, [pin for name, pin in runtime.items() if not is_cuda(name)])
    write(CUDA, [pin for name, pin in everything.items() if is_cuda(name)])
    # the tests compile and interpret kernels also where torch has no CUDA
    own = [pin for name, pin in everything.items() if name not in runtime and not is_cuda(name)]
    write(DEV, [*own, everything["triton"]])


def compiled(extras: list[str], *, prefer: str, keep: bool, fixed: dict[str, Pin] | None = None) -> dict[str, Pin]:
    with tempfile.TemporaryDirectory() as scratch:
        out, constraints = Path(scratch, "out.lock"), Path(scratch, "fixed.txt")
        if keep:
            out.write_text(prefer, "utf-8")
        fixed_pins = (fixed or {}).values()
        constraints.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in fixed_pins), "utf-8")
        chosen = [word for extra in extras for word in ("--extra", extra)]
        files = ["--constraint", str(constraints), "--output-file", str(out), "pyproject.toml"]
        subprocess.run([*UV, "--python-version", OLDEST, *chosen, *files], cwd=ROOT, check=True)
        notes = re.compile(rf"^    # +(?:via )?-c {re.escape(str(constraints))}\n", re.M)
        return pins(notes.sub("", out.read_text("utf-8")).replace(EVERYWHERE, ""))


def with_local_builds(torch: Pin, old: Pin | None) -> Pin:
    """Also admit builds that PyPI lacks, such as 2.13.0+cpu: those the lock had, and those in PIP_FIND_LINKS."""
    hashes = set(re.findall(r"sha256:\w+", torch.text))
    if old is not None and old.version == torch.version:
        hashes |= set(re.findall(r"sha256:\w+", old.text))
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        for wheel in Path(folder).glob(f"torch-{torch.version}+*.whl"):
            hashes.add(f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    head, notes = torch.text.splitlines()[0], [line for line in torch.text.splitlines() if "    #" in line]
    options = [f"    --hash={value}" for value in sorted(hashes)]
    text = "\n".join([head, " \\\n".join(options), *notes]) + "\n"
    return Pin(torch.name, torch.version, torch.marker, text, torch.required_by)


def write(path: Path, entries: list[Pin]) -> None:
    path.write_text(HEADS[path] + "".join(pin.text for pin in sorted(entries, key=lambda pin: pin.name)), "utf-8")


# ------------------------------------------------------------------------------------------------------------- main
def main(mode: str) -> int:
    if mode == "--resolve":
        resolve()
    stale = []
    for extra in ENVIRONMENTS:
        path, text = ROOT / f"envs/{extra}.yaml", environment(extra)
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path.name)
            if mode != "--check":
                path.write_text(text, "utf-8")
    if stale:
        print(("not in step with requirements.lock: " if mode == "--check" else "updated: ") + ", ".join(stale))
    return int(bool(stale) and mode == "--check")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "--check"))
