"""Paths inside the repository, each defined once.

Commands have them as defaults and rules do not pass them: a repository that is moved must not rerun anything. What is
below PACKAGE is there in an installed package too (pip install); the rest needs a clone.
"""

from __future__ import annotations

from pathlib import Path

AFFECTS_RESULTS = False
PACKAGE = Path(__file__).resolve().parent
REPOSITORY = PACKAGE.parent
WORKFLOW = REPOSITORY / "workflow"
CATALOG = PACKAGE / "catalog"
DATASETS = CATALOG / "datasets.yaml"
PAPER = CATALOG / "paper.yaml"
SCHEMA = WORKFLOW / "schemas" / "config.schema.json"
NOTEBOOK = WORKFLOW / "notebooks" / "replication.ipynb"
LOCK = REPOSITORY / "requirements.lock"
