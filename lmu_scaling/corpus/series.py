"""Numbered series of text files, such as the RFCs: which files of a folder or archive are its documents.

An entry of the catalogue describes a series by

    pattern    regular expression of file names; its first group is the number, perhaps with a letter behind it
    last       largest number; later documents are left out, so that the text stays the same while a series grows
    absent     numbers up to `last` that the counted text does not have; they may have appeared since
    fallback   encoding of files that are not UTF-8

The documents are the same, in the same order, whether the files are in a folder or an archive, compressed or not, and
whatever lies beside them.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import PurePosixPath
from typing import Any

from lmu_scaling.corpus.members import Member

NUMBER = re.compile(r"(\d+)(.*)")


def in_series(members: list[Member], series: dict[str, Any]) -> list[Member]:
    """The members that belong to the series in order of numbers; of several with one number the first counts."""
    found: dict[tuple[int, str], Member] = {}
    absent = set(series.get("absent", ()))
    for member in members:
        name = re.fullmatch(series["pattern"], PurePosixPath(member.name).name.lower())
        number = NUMBER.fullmatch(name[1]) if name else None
        if number and int(number[1]) <= series["last"] and int(number[1]) not in absent:
            found.setdefault((int(number[1]), number[2]), member)
    options = {"fallback": series["fallback"]}
    return [dataclasses.replace(found[key], options=options) for key in sorted(found)]
