"""Files made from the configuration: the effective one beside the results, and its JSON schema for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmu_scaling.errors import ConfigError
from lmu_scaling.jobs import Output, job
from lmu_scaling.paths import SCHEMA
from lmu_scaling.runtime import atomic_write, canonical_json, sha256_bytes, write_json
from lmu_scaling.sections import Config


@job
def effective_config(config: dict[str, Any], out: Output) -> dict[str, Any]:
    """Write the effective configuration.

    Args:
        config: the validated configuration, with every default filled in
        out: config.json
    """
    write_json(out, config)
    return {"experiment": config["experiment"], "config_hash": sha256_bytes(canonical_json(config).encode())[:16]}


@job
def schema(out: Path = SCHEMA, check: bool = False) -> None:
    """Export the configuration's JSON schema.

    Args:
        out: where to write it
        check: only check that the exported file is up to date
    """
    text = json.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
    if not check:
        with atomic_write(out) as file:
            file.write(text)
    elif not out.is_file() or out.read_text("utf-8") != text:
        raise ConfigError("the exported schema differs from lmu_scaling/sections.py", str(out), "run `make schema`")
