"""C7: the LMU's per-token loss flattens at about 100 tokens."""

from lmu_scaling.analysis.claims import context_gain

CLAIM = context_gain.claim(
    "C7",
    text="The per-token loss of the LMU model flattens at about 100 tokens",
    place="section 5, figure 4 (right)",
    printed="{per_token[flattens_at]} tokens",
    variant="lmu",
    flat=True,
)
