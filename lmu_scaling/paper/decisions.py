"""Every decision that the paper left open or that we took otherwise, once: docs/deviations.md and the table of
deviations are both made from this list. `python -m lmu_scaling.paper.decisions` writes the document.

A row says what the paper says, what we do, why, and where to change it: a config key, or the file that holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lmu_scaling.paper.tabulate import Code, Table, markdown


class Decision(NamedTuple):
    """One row."""

    item: str
    paper: str
    ours: str
    why: str
    key: str
    """A config key, or the module where the decision is taken."""


VARIANT_FILES = "lmu_scaling/models/variants/"

ARCHITECTURE = (
    Decision(
        "Number of blocks",
        "silent",
        "3 for LMU and LMU + attention, 2 for the transformer, 3 for the LSTM",
        "3 blocks × (FFN 4d² + FFN or attention 4d²) = 24d², the paper's own rule, for both variants; the totals that "
        "are "
        "commented out in the LaTeX source also have FFN = 4d²",
        VARIANT_FILES,
    ),
    Decision(
        "FFN width d'",
        "free symbol",
        "the whole number that brings exact N within 0.25 % of 24d² at the paper's sizes (1.6–1.9 d); one d' for both "
        "FFNs",
        "N = 24d² is the paper's rule for a fair comparison",
        "models.sizes.ffn",
    ),
    Decision(
        "Order q",
        "250 at the largest size",
        "10·round(1.2255·d/10), which is 60 at d = 48 and 250 at d = 204",
        "a constant 250 would alone exceed N at d = 48",
        "models.sizes.q",
    ),
    Decision("Reduced order q'", "q/10", "q/10", "printed", "models.sizes.q_reduced"),
    Decision(
        "Window θ",
        "silent",
        "4q; a model with q > θ is refused",
        "θ = n starves small models, whose sharp recall is about 0.36 q²/θ tokens; 4q keeps the variance before the "
        "non-linearity equal across sizes",
        "models.theta_per_q",
    ),
    Decision(
        "Axes of M, Q, K, V",
        "M in R^{d×q} and in R^{q×d}; Q, K, V in R^{q'×q}",
        "M in R^{q×d}; Q, K, V in R^{q'×d}",
        "Table 2 has 2dq'² FLOPs for QKᵀ, so the inner axis is d",
        "lmu_scaling/models/",
    ),
    Decision(
        "Scale in the implicit softmax", "none", "none; 1/√d can be chosen", "printed without", "models.softmax_scale"
    ),
    Decision(
        "Non-linearity",
        "“such as gelu”",
        "exact (erf) GELU on Q, K, V and in the FFN",
        "the default of the authors' software",
        "lmu_scaling/models/",
    ),
    Decision(
        "Biases",
        "“ignoring the bias vectors”",
        "one q'-vector on each L_i, added after the convolution; FFN biases; none on p",
        "the sentence implies that there are some; these are the ones that the equations leave room for",
        "lmu_scaling/models/",
    ),
    Decision(
        "Projection p",
        "R^{1×q'}",
        "as printed, no further output projection: channels mix only in FFN and attention",
        "Table 2 counts q' parameters",
        "lmu_scaling/models/",
    ),
    Decision(
        "Normalisation and skips",
        "“not shown”",
        "pre-LayerNorm residual around each of the three sub-layers, a last LayerNorm, ε = 1e-5",
        "the usual choice of 2021 for decoders; trains without tricks",
        "lmu_scaling/models/",
    ),
    Decision(
        "LSTM baseline",
        "a law; no model is described",
        "3 layers of width d with skip connections and LayerNorms without weights; forget gates open (bias 1)",
        "both cost no parameters, and without them so narrow a stack does not get past the unigram distribution: a "
        "baseline must be able to compete",
        VARIANT_FILES,
    ),
    Decision(
        "Embedding",
        "2.5M to 10M parameters in total",
        "tied with the output, no output bias: 2.47M at d = 48, 11.25M at d = 204",
        "untied would be 4.9M to 21.5M",
        "lmu_scaling/models/",
    ),
    Decision(
        "Positions",
        "silent",
        "none in LMU variants; learned and absolute in the transformer, outside N",
        "the LMU knows the order; Kaplan et al. count likewise",
        VARIANT_FILES,
    ),
    Decision(
        "Heads of global attention",
        "silent",
        "2 up to d = 92, 4 above; scaled by 1/√d_h; causal",
        "heads of 24 to 51 dimensions",
        "models.sizes.heads",
    ),
    Decision(
        "Blocks with global attention",
        "“in place of the FFN before the LMU”",
        "every block",
        "nothing says that some are excepted, and N = 24d² holds",
        VARIANT_FILES,
    ),
    Decision("Dropout", "silent", "0", "less than two epochs of data", "models.dropout"),
    Decision(
        "Initialisation",
        "silent",
        "Glorot uniform for L_i, FFN and p; N(0, 0.02) for the embedding; zero biases",
        "the defaults of the authors' software; GPT-2's for the embedding",
        "lmu_scaling/models/",
    ),
    Decision(
        "Discretisation",
        "zero-order hold, step 1",
        "the same, in float64 on the CPU by a matrix–vector recursion, then cast; frozen",
        "float32 loses digits at high order",
        "lmu_scaling/models/",
    ),
    Decision(
        "Equations 5 and 6",
        "x is written in reverse",
        "natural order, zero padding, the first n values are kept",
        "taken literally the convolution would look ahead; a test checks causality",
        "lmu_scaling/models/",
    ),
    Decision("State at t", "includes x_t", "the same; predicts x_{t+1}", "equation 1", "lmu_scaling/models/"),
)

TRAINING = (
    Decision(
        "Separator",
        "<|endofsequence|>",
        "<|endoftext|> (50256)",
        "GPT-2's vocabulary has no <|endofsequence|>",
        "tokens.encoding",
    ),
    Decision(
        "Additional filtering",
        "undefined; about 8B tokens remain",
        "an ordered list of filters, each one's effect reported, then an optional subsample to a number of tokens",
        "about half of OpenWebText2 must go, and nothing says which half",
        "corpus.filters",
    ),
    Decision(
        "Long documents",
        "only shorter ones are described",
        "documents and separators form one stream, cut at n (+1 for the target)",
        "nothing is thrown away, and every window is full",
        "models.context",
    ),
    Decision(
        "Split 96/3/1",
        "unit not given",
        "by document, by a stable hash of the content",
        "does not depend on file order, workers or shards; no document is in two splits",
        "corpus.split",
    ),
    Decision(
        "Split that is reported",
        "silent",
        "hyper-parameters are chosen on validation; test is reported, once",
        "otherwise the choice would flatter the result",
        "evaluation.max_sequences",
    ),
    Decision(
        "Epochs",
        "“infinite data limit”",
        "epochs of each run are recorded",
        "13.1B tokens over 96 % of 8B are 1.7 epochs; 130B would be 17",
        "training.steps",
    ),
    Decision("Tokens", "25,000 × 512 × 1024 = 13.1B", "the same in the preset “paper”", "printed", "training.steps"),
    Decision(
        "Optimiser",
        "Adam, “all the default settings”",
        "recipe “paper”: rate 1e-3, β 0.9 and 0.999, ε 1e-7, no decay, no clipping; recipe “tuned”: rate swept per "
        "variant "
        "and size on validation, clipped at 1",
        "ε = 1e-7 is the default of the authors' software; one rate for all favours whoever likes that rate",
        "training.recipe",
    ),
    Decision(
        "Schedule",
        "linear warm-up, cosine to zero, “also reducing on plateau”",
        "4 % warm-up, cosine to zero; the plateau factor multiplies the cosine, off by default",
        "length of warm-up, factor and patience are not given",
        "training.schedule",
    ),
    Decision(
        "Precision",
        "silent",
        "GPU: bfloat16 products; float32 FFT, softmax and cross-entropy, forwards and backwards; evaluation and CPU: "
        "float32; recorded with each run",
        "bfloat16 FFTs lose the memory's accuracy",
        "lmu_scaling/training/",
    ),
    Decision("Seeds", "one", "a list; 3 in the preset “paper”", "intervals need more than one", "training.seeds"),
    Decision(
        "Checkpoint that is reported", "silent", "the last step", "the cosine ends there", "lmu_scaling/training/"
    ),
)

REFERENCES = (
    Decision(
        "Transformer law",
        "(S/S_min(S))^-0.76",
        "Kaplan et al. (2020), eq. 1.6: (S_c/S_min)^0.76 with S_c = 2100",
        "as printed it does not depend on S and puts the transformer above the LSTM",
        "analysis.reference",
    ),
    Decision(
        "Critical batch size in it",
        "commented out",
        "“kaplan_comment”: B_crit at the loss of the converged model, as in the comment; “kaplan_self” solves it "
        "self-consistently",
        "both differ by at most 0.011 nats from 55k to 1M",
        "analysis.reference",
    ),
    Decision(
        "LSTM law",
        "attributed to Kaplan et al.",
        "drawn as the paper prints it",
        "it is not in the text of Kaplan et al., and was probably read off a figure",
        "workflow/catalog/",
    ),
    Decision(
        "Baselines",
        "borrowed laws",
        "a transformer and an LSTM of ours on the same tokens; borrowed laws are reference lines only",
        "the laws belong to another corpus; replicas differ from them by more than the effect under test",
        "models.variants",
    ),
)

SECTIONS = {
    "Architecture (paper, section 4)": ARCHITECTURE,
    "Data and training (paper, section 5)": TRAINING,
    "Reference curves (paper, section 5, Results)": REFERENCES,
}
HEADER = ("Item", "The paper", "Here", "Why", "Where to change it")


def document() -> str:
    """The text of docs/deviations.md."""
    parts = [
        "# Deviations and decisions\n\nWhat the paper leaves open or gets wrong, what is done here instead, why, and "
        "where "
        "to change it. This file is made by `python -m lmu_scaling.paper.decisions`; edit "
        "`lmu_scaling/paper/decisions.py`.\n"
    ]
    for title, decisions in SECTIONS.items():
        rows = tuple((d.item, d.paper, d.ours, d.why, Code(d.key)) for d in decisions)
        parts.append(markdown(Table(f"## {title}", HEADER, rows)))
    return "\n".join(parts)


if __name__ == "__main__":
    target = Path(__file__).resolve().parents[2] / "docs" / "deviations.md"
    target.write_text(document(), "utf-8")
