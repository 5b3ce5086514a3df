"""C9: memory and compute grow with the sequence length as Table 1 says."""

from lmu_scaling.analysis.claims.common import Claim, Evidence, Finding, Verdict

MIN_LENGTH = 2048
SLOPES = {
    ("attention", "compute"): (1.6, 2.3),
    ("attention", "memory"): (1.7, 2.2),
    ("lmu_parallel", "compute"): (0.9, 1.4),
    ("lmu_parallel", "memory"): (0.8, 1.15),
    ("lmu_recurrent", "compute"): (0.85, 1.2),
    ("lmu_recurrent", "memory"): (-0.1, 0.1),
}
ORDER_OF_CLAIM = ("lmu_parallel", "lmu_recurrent", "attention")


def judge(evidence: Evidence) -> Finding:
    table = evidence.slopes
    details, outcomes, slopes = [], set(), {}
    for (layer, quantity), (least, most) in SLOPES.items():
        row = table[(table["layer"] == layer) & (table["quantity"] == quantity)].iloc[0]
        slopes[layer, quantity] = f"{row['slope']:.2f}"
        details.append(f"{layer} {quantity} {row['slope']:.2f}")
        if least <= row["slope"] <= most:
            outcomes.add(Verdict.REPRODUCED)
        else:
            outcomes.add(Verdict.NOT_REPRODUCED if row["low"] > most or row["high"] < least else Verdict.INCONCLUSIVE)
    outcome = next(v for v in (Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE, Verdict.REPRODUCED) if v in outcomes)
    fused = table[(table["layer"] == "attention_flash") & (table["quantity"] == "memory")]
    aside = f" Fused attention holds no n × n matrix: memory {fused['slope'].iloc[0]:.2f}." if len(fused) else ""
    longest = int(table["n_max"].max())
    missing = () if longest >= MIN_LENGTH else (f"sequences of {longest} tokens (needs {MIN_LENGTH})",)
    ours = "; ".join(f"{slopes[layer, 'memory']} and {slopes[layer, 'compute']}" for layer in ORDER_OF_CLAIM)
    return Finding(outcome, f"slopes: {'; '.join(details)}.{aside}", f"exponents {ours}", missing=missing)


CLAIM = Claim(
    id="C9",
    text="Memory and compute grow as O(n) and O(n ln n) for the parallel LMU, O(1) and O(n) for the recurrent one, "
    "O(n^2) for attention",
    place="Table 1",
    printed="exponents 1 and 1+; 0 and 1; 2 and 2",
    statistic="log–log slopes of time and peak memory of one layer over the longest three octaves of n",
    needs=f"if sequences of {MIN_LENGTH:,} tokens or more were measured",
    decision="Reproduced if all six slopes lie in their bands, not reproduced if the interval of one lies wholly "
    "outside its band, else inconclusive.",
    bounds="; ".join(f"{layer} {quantity} {least:g} to {most:g}" for (layer, quantity), (least, most) in SLOPES.items())
    + f": n ln n itself has slope 1.11 there, and caches blur all of them; {MIN_LENGTH:,} tokens: shorter sequences "
    "measure overhead, not growth",
    files=("analysis/complexity_slopes.csv", "analysis/complexity.csv"),
    judge=judge,
)
