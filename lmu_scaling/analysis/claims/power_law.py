"""C1 and C2: is the loss of a variant a power law in N, with the paper's exponent?"""

from __future__ import annotations

from functools import partial

from lmu_scaling.analysis.claims.common import AT_SCALE, Claim, Evidence, Finding, Verdict, find, missing_scale

MIN_R2 = 0.99
MAX_ALPHA_ERROR = 0.01


def judge(evidence: Evidence, variant: str) -> Finding:
    fit = find(evidence.fits["power"], variant=variant, multiple=1.0)
    if fit is None or not fit["fitted"]:
        return Finding(Verdict.NOT_TESTABLE, f"no law in N could be fitted for {variant}")
    low, high, rounding = fit["alpha_low"], fit["alpha_high"], evidence.paper["rounding"]["alpha"]
    printed = fit["paper_alpha"]
    bends = fit["curvature_low"] is not None and not fit["curvature_low"] <= 0 <= fit["curvature_high"]
    straight = fit["r2"] is not None and fit["r2"] >= MIN_R2 and not bends
    covers = low <= printed + rounding and printed - rounding <= high
    narrow = (high - low) / 2 <= MAX_ALPHA_ERROR
    if straight and covers and narrow:
        outcome, detail = Verdict.REPRODUCED, "a straight line whose exponent covers the paper's"
    elif (bends and narrow) or (narrow and not covers):
        outcome = Verdict.NOT_REPRODUCED
        detail = "ln L bends in ln N" if bends else f"α's interval excludes the paper's {printed}"
    else:
        r2 = "unknown" if fit["r2"] is None else f"{fit['r2']:.3f}"
        outcome, detail = Verdict.INCONCLUSIVE, f"α is known to ±{(high - low) / 2:.3f}, R² = {r2}"
    n_c = "?" if fit["n_c"] is None else f"{fit['n_c']:.3g}"
    ours = f"(N / {n_c})^-α, α = {fit['alpha']:.4f}"
    return Finding(outcome, detail + ".", ours, fit["alpha"], low, high, missing_scale(evidence, variant))


def claim(id: str, text: str, place: str, variant: str) -> Claim:
    law = f"power_laws[{variant}]"
    return Claim(
        id=id,
        text=text,
        place=place,
        printed=f"(N / {{{law}[n_c]:.2e}})^-{{{law}[alpha]}}",
        statistic="α, R² and curvature of ln L in ln N",
        needs=AT_SCALE,
        decision=f"Reproduced if R² of ln L on ln N is at least {MIN_R2}, the curvature's interval covers 0, and α's "
        f"interval is no wider than ±{MAX_ALPHA_ERROR} and covers the paper's value (± {{rounding[alpha]}}, its "
        "rounding). Not reproduced if the law bends or such an interval excludes the paper's value. Else inconclusive.",
        bounds=f"R² {MIN_R2}: a power law explains 99 % of the variance of ln L over a decade of N; α to "
        f"±{MAX_ALPHA_ERROR}: a wider interval cannot separate the paper's own laws (α from "
        "{power_laws[lmu_attention][alpha]} to {transformer_law[alpha_n]})",
        files=("analysis/fits.json", "analysis/curves.csv", "analysis/runs.csv"),
        judge=partial(judge, variant=variant),
    )
