"""Removes secrets from manifests, logs and error messages.

A secret is the value of an environment variable with a name like TOKEN, a password inside a URL, or a string shaped
like an access token. Paths of the repository and of the home folder are shortened: they may contain a user's name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lmu_scaling.paths import REPOSITORY

AFFECTS_RESULTS = False
HIDDEN = "[redacted]"
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE", re.IGNORECASE)
SECRET_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abp]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|sk-[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})"
)
IN_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
IN_QUERY = re.compile(r"(?P<key>[?&](?:\w*token|\w*key|signature|sig|password)=)[^\s&#\"']+", re.IGNORECASE)
BEARER = re.compile(r"(?P<key>\b(?:bearer|authorization:)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
SHORTEST = 6  # characters; a shorter value may be an ordinary word
IN_REPOSITORY = re.compile(rf"{re.escape(str(REPOSITORY))}(?![\w-]|\.\w)")  # not a sibling folder with the same prefix


def redact(text: str) -> str:
    """The text without secrets, and with shortened paths."""
    for value in _secret_values():
        text = text.replace(value, HIDDEN)
    text = SECRET_SHAPES.sub(HIDDEN, text)
    text = IN_URL.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = IN_QUERY.sub(rf"\g<key>{HIDDEN}", text)
    text = BEARER.sub(rf"\g<key>{HIDDEN}", text)
    text = IN_REPOSITORY.sub("<repository>", text) if REPOSITORY.name else text
    home = str(Path("~").expanduser())
    return text.replace(f"{home}/", "~/") if len(home) > 1 else text


def redact_json(value: Any) -> Any:
    """Redact every string inside a JSON value."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): redact_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(entry) for entry in value]
    return value


def _secret_values() -> list[str]:
    found = {v for name, v in os.environ.items() if SECRET_NAME.search(name) and len(v) >= SHORTEST and v.strip()}
    # a variable may hold the path of a file with the secret: the path itself is not secret
    return sorted((v for v in found if not v.startswith("/")), key=len, reverse=True)
