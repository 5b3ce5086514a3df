"""Stage `analysis`: one tidy table, fits with intervals, multipliers, and a verdict on each of the paper's claims."""
