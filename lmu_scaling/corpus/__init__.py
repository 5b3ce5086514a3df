"""Stage `corpus`: raw sources, the filter chain, duplicates and the subsample (the paper's section 4, "Dataset")."""
