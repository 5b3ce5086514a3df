"""C1 and C2: is the loss of a variant a power law in N, with the paper's exponent and at the paper's level?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from lmu_scaling.analysis.claims.common import (
    Claim,
    Concept,
    Evidence,
    Finding,
    Gates,
    Support,
    Verdict,
    absent,
    find,
)
from lmu_scaling.analysis.claims.conditions import SAME_SIZES, missing_conditions, name, under_conditions
from lmu_scaling.analysis.claims.nuisance import cells, edges, precisions
from lmu_scaling.analysis.claims.scale import AT_SCALE, missing_scale
from lmu_scaling.analysis.reference import power_laws
from lmu_scaling.analysis.table import MAIN, PAPER_RECIPE, UNTUNED

MIN_R2 = 0.99
MAX_ALPHA_ERROR = 0.01
# 95 % errors of the paper's own law: six sizes, one seed, 0.02 nats between seeds.
PAPER_ALPHA = 0.0038
PAPER_LEVEL = 0.016  # nats, at the geometric mean of its sizes


def judge(evidence: Evidence, variant: str) -> Finding:
    of_paper = find(evidence.fits["power"], variant=variant, multiple=1.0, setting=PAPER_RECIPE)
    tuned = find(evidence.fits["power"], variant=variant, multiple=1.0, setting=MAIN)
    fit = of_paper or tuned
    if fit is None or not fit["fitted"]:
        return absent(f"no law in N could be fitted for {variant}")
    outcome, detail = _direct(evidence, variant, fit)
    setting = PAPER_RECIPE if of_paper else MAIN
    if setting == MAIN and (why := edges(cells(evidence, variant), ("", UNTUNED))):
        outcome, detail = Verdict.INCONCLUSIVE, f"not tuned: {why}"
    n_c = "?" if fit["n_c"] is None else f"{fit['n_c']:.3g}"
    ours = f"(N / {n_c})^-α, α = {fit['alpha']:.4f}"
    missing = missing_scale(evidence, variant, setting=setting)
    missing += precisions(evidence.at_main_budget(setting).query("variant == @variant"))
    concept = _concept(evidence, variant, tuned)
    return Finding(outcome, f"{detail}.", ours, fit["alpha"], fit["alpha_low"], fit["alpha_high"], missing, concept)


def _direct(evidence: Evidence, variant: str, fit: dict[str, Any]) -> tuple[Verdict, str]:
    half = (fit["alpha_high"] - fit["alpha_low"]) / 2
    narrow, straight = half <= MAX_ALPHA_ERROR, _straight(fit)
    apart, allowed = _alpha(evidence, fit)
    off, margin = _level(evidence, variant, fit)
    told = f"α is {apart:+.4f} (± {allowed:.4f}) and the level {off:+.3f} nats (± {margin:.3f}) off the paper's"
    if not narrow:
        return Verdict.INCONCLUSIVE, f"α is known to ±{half:.3f} only; {told}"
    if _bends(fit):
        return Verdict.NOT_REPRODUCED, f"ln L bends in ln N; {told}"
    if abs(apart) > allowed or abs(off) > margin:
        which = "α's combined interval excludes" if abs(apart) > allowed else "the level's combined interval excludes"
        return Verdict.NOT_REPRODUCED, f"{which} the paper's; {told}"
    if straight:
        return Verdict.REPRODUCED, f"a straight line with the paper's exponent and level; {told}"
    return Verdict.INCONCLUSIVE, f"R² = {_r2(fit)}; {told}"


def _alpha(evidence: Evidence, fit: dict[str, Any]) -> tuple[float, float]:
    """Difference from the paper's α, and what both uncertainties and its rounding allow."""
    apart = fit["alpha"] - fit["paper_alpha"]
    ours = fit["alpha"] - fit["alpha_low"] if apart > 0 else fit["alpha_high"] - fit["alpha"]
    return apart, float(np.hypot(ours, PAPER_ALPHA)) + evidence.paper["rounding"]["alpha"]


def _level(evidence: Evidence, variant: str, fit: dict[str, Any]) -> tuple[float, float]:
    """The same for the loss at our geometric-mean N."""
    printed = float(power_laws(evidence.paper)[variant].loss(fit["n_mean"]))
    off = fit["loss_at_mean"] - printed
    near = "loss_at_mean_low" if off > 0 else "loss_at_mean_high"
    middle = np.log(list(evidence.paper["experiment"]["sizes"].values())).mean()
    away = printed * PAPER_ALPHA * (np.log(fit["n_mean"]) - middle)  # its exponent's error moves its level elsewhere
    return off, float(np.sqrt((fit["loss_at_mean"] - fit[near]) ** 2 + PAPER_LEVEL**2 + away**2))


def _bends(fit: dict[str, Any]) -> bool:
    return fit["curvature_low"] is not None and not fit["curvature_low"] <= 0 <= fit["curvature_high"]


def _straight(fit: dict[str, Any]) -> bool:
    return fit["r2"] is not None and fit["r2"] >= MIN_R2 and not _bends(fit)


def _r2(fit: dict[str, Any]) -> str:
    return "unknown" if fit["r2"] is None else f"{fit['r2']:.3f}"


def _concept(evidence: Evidence, variant: str, fit: dict[str, Any] | None) -> Concept:
    """The form only: α and N_c depend on the text and on the tokens."""
    missing = missing_conditions(evidence, variant)
    if fit is None or not fit["fitted"]:
        return Concept(Support.NOT_MET, "", missing or (f"no law in N could be fitted for {variant}",))
    shape = f"(R² = {_r2(fit)}, α = {fit['alpha']:.3f} [{fit['alpha_low']:.3f}, {fit['alpha_high']:.3f}])"
    if fit["alpha_high"] < 0:
        support, clause = Support.CONTRADICTS, "rose with N"
    elif _bends(fit):
        support, clause = Support.CONTRADICTS, "bent in log–log axes"
    elif _straight(fit) and fit["alpha_low"] > 0:
        support, clause = Support.SUPPORTS, "was straight in log–log axes"
    else:
        support, clause = Support.INCONCLUSIVE, "was neither straight nor clearly bent in log–log axes"
    statement = under_conditions(evidence, f"the loss of {name(evidence, variant)} {clause} {shape}")
    return Concept(support, statement, missing)


def claim(id: str, text: str, place: str, variant: str) -> Claim:
    law = f"power_laws[{variant}]"
    return Claim(
        id=id,
        text=text,
        place=place,
        printed=f"(N / {{{law}[n_c]:.2e}})^-{{{law}[alpha]}}",
        statistic="α, R² and curvature of ln L in ln N, and the loss at the geometric-mean N; runs by the paper's own "
        "recipe if there are any, else the main ones",
        needs=AT_SCALE,
        decision=f"Reproduced if R² of ln L on ln N is at least {MIN_R2}, the curvature's interval covers 0, α is "
        f"known to ±{MAX_ALPHA_ERROR}, and α and the level agree with the paper's within the combined interval of "
        "both. Not reproduced if α is known that well and the law bends, or α or the level disagrees. Else "
        "inconclusive.",
        bounds=f"R² {MIN_R2}: a power law explains 99 % of the variance of ln L over a decade of N; α to "
        f"±{MAX_ALPHA_ERROR}: a wider interval cannot separate the paper's own laws (α from "
        "{power_laws[lmu_attention][alpha]} to {transformer_law[alpha_n]}); combined interval: the paper's own α is "
        f"known to ±{PAPER_ALPHA} and its level to ±{PAPER_LEVEL} nats (six sizes, one seed, 0.02 nats between seeds), "
        "added in quadrature to ours, and its rounding, ±{rounding[alpha]}",
        files=("analysis/fits.json", "analysis/curves.csv", "analysis/runs.csv"),
        judge=partial(judge, variant=variant),
        gates=lambda evidence, _: Gates(missing_scale(evidence, variant), missing_conditions(evidence, variant)),
        concept=f"with {SAME_SIZES}, supported if R² is at least {MIN_R2}, the curvature's interval covers 0 and the "
        "loss falls; contradicted if it bends or rises. Only the form is judged, neither α nor N_c.",
    )
