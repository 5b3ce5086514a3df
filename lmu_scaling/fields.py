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


class Section(BaseModel):
    """A section of the configuration: immutable; unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
