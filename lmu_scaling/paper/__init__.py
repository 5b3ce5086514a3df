"""The stage `paper`: every figure and table, and one report. Nothing here computes; it shows `analysis/`."""
