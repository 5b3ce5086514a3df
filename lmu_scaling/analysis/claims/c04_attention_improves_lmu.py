"""C4: global attention lowers the LMU's loss."""

from lmu_scaling.analysis.claims import loss_difference

CLAIM = loss_difference.claim(
    "C4",
    text="Global attention improves the LMU model further",
    place="abstract; section 5, figure 3",
    better="lmu_attention",
    worse="lmu",
)
