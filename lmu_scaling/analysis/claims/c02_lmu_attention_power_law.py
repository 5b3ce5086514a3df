"""C2: the loss of the LMU with global attention follows a power law in N."""

from lmu_scaling.analysis.claims import power_law

CLAIM = power_law.claim(
    "C2",
    text="So does the loss of the LMU model with global attention",
    place="section 5, LMU_G(N)",
    variant="lmu_attention",
)
