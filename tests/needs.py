"""What a test needs of its machine: missing on a user's, the test is skipped and says why; in CI it fails."""

from __future__ import annotations

import os

import pytest

IN_CI = bool(os.environ.get("LMU_SCALING_CI"))


def needs(present: object, otherwise: str) -> pytest.MarkDecorator:
    """A mark: the test runs if `present`, and in CI in any case."""
    return pytest.mark.skipif(not present and not IN_CI, reason=otherwise)


def require(present: object, otherwise: str) -> None:
    """The same inside a test or a fixture."""
    if not present:
        (pytest.fail if IN_CI else pytest.skip)(otherwise)
