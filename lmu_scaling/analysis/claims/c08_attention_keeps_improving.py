"""C8: with global attention the loss keeps falling along the context."""

from lmu_scaling.analysis.claims import context_gain

CLAIM = context_gain.claim(
    "C8",
    text="With global attention the loss keeps falling along the context, as a transformer's does",
    place="section 5, figure 4 (left)",
    printed="keeps falling",
    variant="lmu_attention",
    flat=False,
)
