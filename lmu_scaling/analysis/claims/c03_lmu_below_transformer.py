"""C3: the LMU has a lower loss than transformers."""

from lmu_scaling.analysis.claims import loss_difference

CLAIM = loss_difference.claim(
    "C3",
    text="At equal training the LMU model has a lower loss than transformers, up to 1M parameters",
    place="section 5, figure 3",
    better="lmu",
    worse="transformer",
    any_transformer=True,
)
