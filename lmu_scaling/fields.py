"""Base class and field types of the configuration's sections (`sections.py`, `corpus/filters/`)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

AFFECTS_RESULTS = False

Share = Annotated[float, Field(ge=0, le=1)]
SomeShare = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|MB|GB|TB)")
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _bytes(value: Any) -> Any:
    """A number of bytes, from a number with a unit; whatever else it is, pydantic judges."""
    match = BYTES.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and match is None:
        raise ValueError("not a number of bytes such as 500 MB (units: B, kB, MB, GB, TB)")
    return round(float(match[1]) * UNITS[match[2]]) if match else value


SIZES = {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^{BYTES.pattern}$"}]}
ByteCount = Annotated[int, Field(gt=0), BeforeValidator(_bytes), WithJsonSchema(SIZES)]
# Upper limits are far above any use; beyond them a typing error would plan centuries, or fill the memory.
Steps = Annotated[int, Field(gt=0, le=100_000_000)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]
Multiple = Annotated[float, Field(gt=0, le=10_000)]


class Section(BaseModel):
    """A section of the configuration: immutable; unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
