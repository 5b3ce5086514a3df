"""Replication of "Language Modeling using LMUs" (arXiv 2110.02402): the science, without the workflow."""

__version__ = "0.1.0"
