"""C6: the LMU gains over transformers about what transformers gain over LSTMs."""

from lmu_scaling.analysis.claims.common import (
    AT_SCALE,
    Claim,
    Evidence,
    Finding,
    Verdict,
    find,
    judge_interval,
    missing_scale,
)

RATIO = (0.5, 2.0)
TAIL = 0.025


def judge(evidence: Evidence) -> Finding:
    entry = find(evidence.fits["gain"], variant="lmu")
    if entry is None:
        return Finding(Verdict.NOT_TESTABLE, "needs LMU, transformer and LSTM at two sizes or more")
    if (share := entry["denominator_positive_share"]) < 1 - TAIL:
        sign = "negative" if share <= TAIL else "indistinguishable from zero"
        outcome, detail = Verdict.INCONCLUSIVE, f"the transformer's own gain over the LSTM is {sign}"
    else:
        outcome = judge_interval(entry["low"], entry["high"], RATIO)
        detail = f"gain {entry['gain']:+.3f} against {entry['gain_of_transformer']:+.3f} nats"
    missing = missing_scale(evidence, "lmu", "transformer", "lstm")
    ratio = entry["ratio"]
    return Finding(outcome, detail + ".", f"ratio {ratio:.2f}", ratio, entry["low"], entry["high"], missing)


CLAIM = Claim(
    id="C6",
    text="The gain over transformers is about that of transformers over LSTMs",
    place="abstract",
    printed="ratio about 1",
    statistic="(transformer − LMU) / (LSTM − transformer) at the geometric-mean N, all three our own",
    needs=f"{AT_SCALE}, for LMU, transformer and LSTM of our own",
    decision=f"Reproduced if the ratio's interval lies within {RATIO[0]:g}–{RATIO[1]:g}; not reproduced if it lies "
    f"outside; inconclusive if it does neither, or if the transformer's gain over the LSTM is positive in less than "
    f"{1 - TAIL:.1%} of the bootstrap draws.",
    bounds=f"{RATIO[0]:g}–{RATIO[1]:g}: “about as much” is taken as within a factor of two",
    files=("analysis/fits.json", "analysis/runs.csv"),
    judge=judge,
)
