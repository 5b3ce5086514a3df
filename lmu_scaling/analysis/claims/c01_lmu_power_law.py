"""C1: the LMU's loss follows a power law in N."""

from lmu_scaling.analysis.claims import power_law

CLAIM = power_law.claim(
    "C1",
    text="The loss of the LMU model follows a power law in N",
    place="section 5, LMU(N)",
    variant="lmu",
)
