"""One truth for versions: names in envs/*.yaml, versions in requirements.lock and requirements-dev.lock.

    python envs/lock.py --write     put the locks' versions into envs/*.yaml
    python envs/lock.py --check     say where they disagree, exit 1 if they do
    python envs/lock.py --names     print the names of the runtime dependencies (what `make lock` installs)

Plain text work on purpose: it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PIN = re.compile(r"^(?P<indent>\s+- )(?P<name>[A-Za-z0-9_.-]+)(?:==(?P<version>[^\s;]+))?(?P<marker>; .+)?$")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    pins = {}
    for lock in ("requirements.lock", "requirements-dev.lock"):
        for line in (HERE.parent / lock).read_text("utf-8").splitlines():
            name, _, version = line.partition("==")
            if version and not line.startswith(("#", "-")):
                pins[normal(name)] = version.partition(";")[0].strip()
    return pins


def synced(text: str, pins: dict[str, str], path: Path) -> str:
    """The environment file with every pip entry pinned as the lock says."""
    head, marker, entries = text.partition("  - pip:\n")
    lines = []
    for line in entries.splitlines():
        match = PIN.match(line)
        if match is None:
            raise SystemExit(f"{path.name}: not a pin: {line!r}")
        if normal(match["name"]) not in pins:
            raise SystemExit(f"{path.name}: {match['name']} is not in requirements.lock; run `make lock`")
        lines.append(f"{match['indent']}{match['name']}=={pins[normal(match['name'])]}{match['marker'] or ''}")
    return head + marker + "\n".join(lines) + "\n"


def names(dev: bool) -> list[str]:
    found = {}
    for path in sorted(HERE.glob("*.yaml")):
        if (path.stem == "dev") == dev:
            for line in path.read_text("utf-8").partition("  - pip:\n")[2].splitlines():
                if match := PIN.match(line):
                    found[normal(match["name"])] = match["name"]
    return sorted(found.values(), key=str.lower)


def main(mode: str) -> int:
    if mode in ("--names", "--dev-names"):
        print("\n".join(names(dev=mode == "--dev-names")))
        return 0
    stale = []
    for path in sorted(HERE.glob("*.yaml")):
        text = path.read_text("utf-8")
        new = synced(text, locked(), path)
        if new != text:
            stale.append(path.name)
            if mode == "--write":
                path.write_text(new, "utf-8")
    if stale:
        print(("updated: " if mode == "--write" else "not in step with requirements.lock: ") + ", ".join(stale))
    return int(bool(stale) and mode != "--write")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "--check"))
