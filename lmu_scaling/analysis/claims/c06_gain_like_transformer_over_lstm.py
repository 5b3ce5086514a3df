"""C6: the LMU gains over transformers about what transformers gain over LSTMs."""

from lmu_scaling.analysis.claims.common import (
    IN_OTHER_WORDS,
    Claim,
    Concept,
    Evidence,
    Finding,
    Gates,
    Verdict,
    absent,
    find,
    judge_interval,
)
from lmu_scaling.analysis.claims.conditions import SAME_SIZES, missing_conditions, name, under_conditions
from lmu_scaling.analysis.claims.nuisance import cells, precisions, unsettled
from lmu_scaling.analysis.claims.scale import AT_SCALE, missing_scale
from lmu_scaling.analysis.comparisons import PAPER_BASELINE

RATIO = (0.5, 2.0)
TAIL = 0.025


def judge(evidence: Evidence, baseline: str = PAPER_BASELINE) -> Finding:
    entry = find(evidence.fits["gain"], variant="lmu", baseline=baseline)
    if entry is None:
        return absent(f"no LMU, {baseline} and LSTM at two sizes or more")
    ratio, gain, own = entry["ratio"], entry["gain"], entry["gain_of_transformer"]
    gains, problem = f"gain {gain:+.3f} against {own:+.3f} nats", ""
    share = entry["denominator_positive_share"]
    if share <= TAIL:
        outcome, problem = Verdict.INCONCLUSIVE, f"premise fails: {name(evidence, baseline)} is worse than the LSTM"
    elif share < 1 - TAIL:
        outcome = Verdict.INCONCLUSIVE
        problem = f"the gain of {name(evidence, baseline)} over the LSTM is indistinguishable from zero"
    else:
        outcome = judge_interval(entry["low"], entry["high"], RATIO)
    why = _unsettled(evidence, baseline, gain, own)
    if why and outcome != Verdict.INCONCLUSIVE:
        outcome, problem = Verdict.INCONCLUSIVE, why
    missing, conditions = gates(evidence, baseline)
    clause = (
        f"the LMU gained {gain:+.3f} nats over {name(evidence, baseline)}, and that {own:+.3f} over an LSTM (ratio "
        f"{ratio:.2f} [{entry['low']:.2f}, {entry['high']:.2f}]){f'; {problem}' if problem else ''}"
    )
    concept = Concept(IN_OTHER_WORDS[outcome], under_conditions(evidence, clause), conditions)
    ends = entry["low"], entry["high"]
    detail = f"{problem}; {gains}." if problem else f"{gains}."
    return Finding(outcome, detail, f"ratio {ratio:.2f}", ratio, *ends, missing, concept)


def gates(evidence: Evidence, baseline: str) -> Gates:
    trio = ("lmu", baseline, "lstm")
    direct = missing_scale(evidence, *trio) + precisions(cells(evidence, *trio))
    return Gates(direct, missing_conditions(evidence, *trio))


def _unsettled(evidence: Evidence, baseline: str, gain: float, own: float) -> str:
    """Either gap may be a nuisance's."""
    return unsettled(evidence, "lmu", baseline, gain) or unsettled(evidence, baseline, "lstm", own)


CLAIM = Claim(
    id="C6",
    text="The gain over transformers is about that of transformers over LSTMs",
    place="abstract",
    printed="ratio about 1",
    statistic="(transformer − LMU) / (LSTM − transformer) at the geometric-mean N, all three our own",
    needs=f"{AT_SCALE}, for LMU, transformer and LSTM of our own",
    decision=f"Reproduced if the ratio's interval lies within {RATIO[0]:g}–{RATIO[1]:g}; not reproduced if it lies "
    "outside; else inconclusive. Inconclusive in any case if the transformer's gain over the LSTM is positive in less "
    f"than {1 - TAIL:.1%} of the bootstrap draws (in less than {TAIL:.1%}: the premise fails), if a cell is not tuned, "
    "or if another setting improves the loser of either difference by as much as it.",
    bounds=f"{RATIO[0]:g}–{RATIO[1]:g}: “about as much” is taken as within a factor of two",
    files=("analysis/fits.json", "analysis/runs.csv", "analysis/sensitivity.csv"),
    judge=judge,
    gates=gates,
    concept=f"with {SAME_SIZES}, by the same rule.",
    baseline=PAPER_BASELINE,
    against=judge,
)
