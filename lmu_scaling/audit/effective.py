"""The effective configuration of an experiment, stored beside its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmu_scaling.runtime import canonical_json, sha256_bytes, write_json


def effective(config: str, out: Path) -> dict[str, Any]:
    """Write the validated configuration with every default filled in; `config` is JSON."""
    values = json.loads(config)
    write_json(out, values)
    return {"experiment": values["experiment"], "config_hash": sha256_bytes(canonical_json(values).encode())[:16]}
