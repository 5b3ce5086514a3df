"""The paper's claims: one module each (c01_… to c12_…), found by file name, with its text, bounds, rule and judgement.

A new claim is a new file that defines `CLAIM`; `judge` applies them all, `common` holds what they share.
"""

from __future__ import annotations

import pkgutil
import re


def claim_modules() -> list[str]:
    """Names of all claim modules, in order. Imports none of them: the Snakefile asks too, and must be quick."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [f"{__name__}.{name}" for name in names if re.fullmatch(r"c\d+_\w+", name)]
