"""The configuration's JSON schema: exported from the pydantic models, so that editors complete and check keys."""

from __future__ import annotations

import json
from pathlib import Path

from lmu_scaling.errors import ConfigError
from lmu_scaling.runtime import atomic_write
from lmu_scaling.sections import Config

EXPORTED = Path(__file__).resolve().parents[2] / "workflow" / "schemas" / "config.schema.json"


def text() -> str:
    return json.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def schema(out: Path | None = None, check: bool = False) -> None:
    path = out or EXPORTED
    if not check:
        with atomic_write(path) as file:
            file.write(text())
    elif not path.is_file() or path.read_text("utf-8") != text():
        raise ConfigError(
            "the exported schema is not in step with lmu_scaling/sections.py", str(path), "run `make schema`"
        )
