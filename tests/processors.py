"""Processors that this one can stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmu_scaling.models import native


@contextmanager
def processor(avx512: bool) -> Iterator[None]:
    """Use the kernels that are built for this processor, or those for one without AVX-512."""
    with pytest.MonkeyPatch.context() as patch:
        if not avx512:
            patch.setattr(native, "kernels", lambda: native.load_library(avx512=False))
        yield
