"""Stage `corpus`: sources of text, documents, filters and duplicate detection (the paper's section 5, "Dataset")."""
