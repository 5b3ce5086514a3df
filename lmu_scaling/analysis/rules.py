"""The rules behind the verdicts, as data: what each claim needs to be testable, and what would confirm or refute it.

`claims.py` applies them; docs/claims.md explains them; nobody types in a verdict. Every bound has its reason beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
INCONCLUSIVE = "inconclusive"
NOT_TESTABLE = "not testable at this scale"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE, NOT_TESTABLE)


@dataclass(frozen=True)
class Scale:
    """The least an experiment must have before a claim about the paper's regime can be judged."""

    sizes: int = 4
    """Two sizes fix a line; four show whether it is one."""
    decades: float = 1.0
    """log₁₀ of largest over smallest N; the paper spans 1.26."""
    n_max: float = 5e5
    """Reach at least half of the paper's largest model."""
    seeds: int = 2
    """One seed has no spread."""
    tokens: float = 1e9
    """A thirteenth of the paper's: below, data and not N limit the loss."""
    vocab: int = 50257
    """Losses per token compare only with the same tokens."""
    context: int = 512
    """Half of the paper's: more than twice the 128 tokens at which the LMU is said to flatten."""

    sequences: int = 20
    """Test sequences: from b of them the bootstrap sees a spread that is √(1 − 1/b) of the true one; from one, none."""
    transform: int = 16
    """Shortest context whose FLOPs follow Table 2 to a percent: n + 1 frequencies are not n, and others are padded."""

    length: int = 2048
    """Longest measured sequence: shorter ones are overhead, not growth."""


SCALE = Scale()

R2 = 0.99
"""A power law explains 99 % of the variance of ln L over a decade of N, else it is not one."""
ALPHA_USEFUL = 0.01
"""An interval of α wider than ±0.01 cannot tell the paper's own laws (0.069 … 0.077) apart."""
TOKEN_FACTOR = (5.0, 20.0)
""""About ten times": within a factor of two."""
GAIN_RATIO = (0.5, 2.0)
""""About as much": within a factor of two."""
FLAT = 0.06
"""Nats gained from 64–128 to 512–1024 tokens of context below which a curve counts as flat: a quarter of the 0.23 that
Kaplan's smallest per-token law (4.0 + 3.2 T^-0.47) gains there."""
SLOPES = {
    ("attention", "compute"): (1.6, 2.3),
    ("attention", "memory"): (1.7, 2.2),
    ("lmu_parallel", "compute"): (0.9, 1.4),
    ("lmu_parallel", "memory"): (0.8, 1.15),
    ("lmu_recurrent", "compute"): (0.85, 1.2),
    ("lmu_recurrent", "memory"): (-0.1, 0.1),
}
"""Log–log slopes over the longest three octaves; n ln n itself has 1.11 there, and caches blur every one of them."""
EQUAL_ORDER = 1e-9
"""Relative difference of two float64 computations of the same thing."""
FLOPS_TOLERANCE = 0.01
"""n/2 + 1 frequencies instead of n/2, and odd lengths that are padded."""
KAPLAN_READINGS = 0.015
"""The two readings of Kaplan's law are the same for our purposes if they differ by less [nats]."""

SENTENCES = {
    "C1": "Testable with at least {s.sizes} sizes over {s.decades:g} decade of N reaching {s.n_max:,.0f}, {s.seeds} "
    "seeds, {s.tokens:,.0f} tokens of OpenWebText2 in GPT-2's vocabulary of {s.vocab:,}, {s.sequences} test sequences. "
    "Reproduced if R² of ln L on ln N is at least {R2}, the curvature's interval covers 0 and α's interval, no wider "
    "than ±{ALPHA_USEFUL}, covers the paper's value (± its rounding). Not reproduced if the law bends or such an "
    "interval excludes the paper's value. Else inconclusive.",
    "C2": "As C1, for the model with global attention.",
    "C3": "Testable as C1. The difference transformer − LMU is taken at the geometric-mean N and at every size. "
    "Reproduced if its interval lies above 0 at the mean and the estimate is positive at every size; not reproduced if "
    "the interval lies below 0; else inconclusive.",
    "C4": "As C3, for the difference LMU − LMU with attention.",
    "C5": "Testable as C1, if our transformer reaches the LMU's loss or was trained on 10 times the tokens. Judged at "
    "the middle size by the token multiplier against our own transformer: reproduced if its interval lies within "
    "{TOKEN_FACTOR[0]:g}–{TOKEN_FACTOR[1]:g}, or if it is a lower bound of 10 or more; not reproduced if the interval "
    "lies outside; else inconclusive.",
    "C6": "Testable as C1, with LSTM and transformer of our own. (transformer − LMU) / (LSTM − transformer) at the "
    "geometric-mean N: reproduced if its interval lies within {GAIN_RATIO[0]:g}–{GAIN_RATIO[1]:g}, not reproduced if "
    "it lies outside, else inconclusive.",
    "C7": "Testable with a context of at least {s.context} tokens, {s.tokens:,.0f} training tokens, corpus, "
    "vocabulary and test sequences as C1. The loss at positions 65–128 minus that of the second half of the context, "
    "largest LMU: reproduced if the interval lies below {FLAT} nats, not reproduced if above, else inconclusive.",
    "C8": "As C7, for the model with attention: reproduced if the interval lies above {FLAT} nats, not reproduced if "
    "below, else inconclusive.",
    "C9": "Testable if sequences of {s.length:,} tokens or more were measured. Log–log slopes over the longest three "
    "octaves: reproduced if all six lie in their bands, not reproduced if the interval of one lies wholly outside its "
    "band, else inconclusive.",
    "C10": "Testable anywhere. Reduced and full order of every model with a memory, in float64: reproduced if the "
    "largest relative difference is below {EQUAL_ORDER:g} and the reduced form needs fewer FLOPs; else not reproduced.",
    "C11": "Testable anywhere, as to FLOPs where the context is a power of two and at least {s.transform}, or they "
    "agree nevertheless (other transforms are padded). Every operation of Table 2, executed literally on the built "
    "layers: reproduced if parameters are equal and FLOPs agree to {FLOPS_TOLERANCE:.0%}; else not reproduced.",
    "C12": "Testable on paper. Reproduced if the printed law depends on S and agrees with Kaplan's eq. 1.6 to "
    "{KAPLAN_READINGS:g} nats at the paper's sizes; else not reproduced.",
}


def sentence(claim: str) -> str:
    """The rule of a claim in words, with its numbers filled in."""
    numbers = {name: value for name, value in globals().items() if name.isupper()}
    return SENTENCES[claim].format(s=SCALE, **numbers)
