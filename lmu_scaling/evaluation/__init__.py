"""Stage `evaluation`: cross-entropy and per-token loss of a trained model (section 5, Results)."""
