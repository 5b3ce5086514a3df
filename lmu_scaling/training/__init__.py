"""Training: one job per variant × size × budget × seed (paper, section 5)."""
