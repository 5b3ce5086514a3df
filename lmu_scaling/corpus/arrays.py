"""Reading what one job left for the next; a file that is missing or damaged is explained, not traced."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmu_scaling.errors import CorpusError


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Put around the opening of `path`, and the reading of its arrays."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CorpusError(
            f"missing or damaged: {error}", str(path), "delete the file, if it is there, and run the workflow again"
        ) from error
