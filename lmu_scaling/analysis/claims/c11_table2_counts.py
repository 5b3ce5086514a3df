"""C11: parameters and FLOPs of each operation are those of Table 2."""

from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Verdict

FLOPS_TOLERANCE = 0.01
MIN_TRANSFORM = 16


def judge(evidence: Evidence) -> Finding:
    rows = evidence.table2[evidence.table2["flops"].notna()]
    models = evidence.counts
    same = bool((rows["parameters"] == rows["parameters_measured"]).all())
    same &= bool((models["n_exact"] == models["n_exact_measured"]).all())
    worst = float((rows["flops_measured"] / rows["flops"] - 1).abs().max())
    outcome = Verdict.REPRODUCED if same and worst <= FLOPS_TOLERANCE else Verdict.NOT_REPRODUCED
    detail = (
        f"parameters {'equal' if same else 'NOT equal'} in {len(rows)} operations and {len(models)} models; FLOPs "
        f"differ by {worst:.2%} at most."
    )
    padded = same and outcome == Verdict.NOT_REPRODUCED  # padding of a transform does not contradict the formulas
    missing = _missing_length(int(models["context"].iloc[0])) if padded else ()
    return Finding(outcome, detail, f"{worst:.2%} apart", worst, missing=missing)


def _missing_length(n: int) -> tuple[str, ...]:
    """What a context lacks for its Fourier transforms to have the lengths of Table 2."""
    if n >= MIN_TRANSFORM and n & (n - 1) == 0:
        return ()
    return (f"a context that is a power of two and at least {MIN_TRANSFORM} (has {n:,})",)


CLAIM = Claim(
    id="C11",
    text="Parameters and FLOPs per token of each operation",
    place="Table 2",
    printed="formulas of Table 2",
    statistic="parameters and FLOPs of every operation, counted while the equations run literally on built layers",
    needs=f"anywhere; FLOPs only if the context is a power of two and at least {MIN_TRANSFORM}, or if they agree "
    "nevertheless (other transforms are padded)",
    decision=f"Reproduced if parameters are equal and FLOPs agree to {FLOPS_TOLERANCE:.0%}; else not reproduced.",
    bounds=f"{FLOPS_TOLERANCE:.0%}: a transform has n + 1 frequencies where Table 2 has n; {MIN_TRANSFORM}: in shorter "
    "contexts that difference exceeds the tolerance",
    files=("analysis/table2.csv", "analysis/counts.csv"),
    judge=judge,
)
