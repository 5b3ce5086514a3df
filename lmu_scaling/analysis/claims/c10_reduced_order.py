"""C10: the reduced-order form is equivalent to the full-order one, and cheaper."""

from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Verdict

MAX_DIFFERENCE = 1e-9


def judge(evidence: Evidence) -> Finding:
    rows = evidence.counts.dropna(subset=["reduced_order_error"])
    if rows.empty:
        return Finding(Verdict.NOT_TESTABLE, "no model with a memory is configured")
    error = float(rows["reduced_order_error"].max())
    cheaper = bool((rows["flops_reduced_order"] < rows["flops_full_order"]).all())
    outcome = Verdict.REPRODUCED if error < MAX_DIFFERENCE and cheaper else Verdict.NOT_REPRODUCED
    saving = (rows["flops_full_order"] / rows["flops_reduced_order"]).median()
    detail = (
        f"largest relative difference {error:.1e} over {len(rows)} models; {saving:.1f} times fewer FLOPs (median)."
    )
    return Finding(outcome, detail, f"{error:.1e}", error)


CLAIM = Claim(
    id="C10",
    text="The reduced-order form is mathematically equivalent and uses fewer operations",
    place="appendix A.1",
    printed="equal",
    statistic="largest relative difference between reduced and full order, in float64, over all models with a memory",
    needs="anywhere",
    decision=f"Reproduced if the largest relative difference is below {MAX_DIFFERENCE:g} and the reduced form needs "
    "fewer FLOPs; else not reproduced.",
    bounds=f"{MAX_DIFFERENCE:g}: what two float64 computations of the same quantity differ by",
    files=("analysis/counts.csv",),
    judge=judge,
)
