"""Base class and field types of the configuration's sections (`sections.py`, `corpus/filters/`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

AFFECTS_RESULTS = False

Share = Annotated[float, Field(ge=0, le=1)]
SomeShare = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
# Upper limits are far above any use; beyond them a typing error would plan centuries, or fill the memory.
Steps = Annotated[int, Field(gt=0, le=100_000_000)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]
Multiple = Annotated[float, Field(gt=0, le=10_000)]


class Section(BaseModel):
    """A section of the configuration: immutable; unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
