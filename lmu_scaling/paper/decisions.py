"""Decisions where the paper is silent or ambiguous, or where we deviate from it.

docs/deviations.md and the table of deviations are made from this list (`python -m lmu_scaling.paper.docs`).
"""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """What the paper says, what is done here, why, and where to change it."""

    item: str
    paper: str
    ours: str
    why: str
    key: str  # a config key, or the file that implements the decision


MODELS, VARIANTS = "lmu_scaling/models/", "lmu_scaling/models/variants/"

# fmt: off
ARCHITECTURE = (
    Decision("Number of blocks", "not stated",
             "3 for LMU and LMU + attention, 2 for the transformer, 3 for the LSTM",
             "3 blocks × (FFN 4d² + FFN or attention 4d²) = 24d², the paper's own rule, for both variants; the "
             "totals that are commented out in the LaTeX source also have FFN = 4d²", VARIANTS),
    Decision("FFN width d'", "free symbol",
             "the whole number that brings exact N within 0.25 % of 24d² at the paper's sizes (1.6–1.9 d); one d' "
             "for both FFNs", "N = 24d² is the paper's rule for a fair comparison", "models.sizes.ffn"),
    Decision("Order q", "250 at the largest size",
             "10·round(1.2255·d/10), which is 60 at d = 48 and 250 at d = 204",
             "a constant 250 would alone exceed N at d = 48", "models.sizes.q"),
    Decision("Reduced order q'", "q/10",
             "q/10", "as printed", "models.sizes.q_reduced"),
    Decision("Window θ", "not stated",
             "4q; a model with q > θ is refused",
             "with θ = n small models recall too little (sharply about 0.36 q²/θ tokens); 4q keeps the variance "
             "before the non-linearity equal across sizes", "models.theta_per_q"),
    Decision("Axes of M, Q, K, V", "M in R^{d×q} and in R^{q×d}; Q, K, V in R^{q'×q}",
             "M in R^{q×d}; Q, K, V in R^{q'×d}", "Table 2 has 2dq'² FLOPs for QKᵀ, so the inner axis is d", MODELS),
    Decision("Scale in the implicit softmax", "none",
             "none; 1/√d can be chosen", "as printed", "models.softmax_scale"),
    Decision("Non-linearity", "“such as gelu”",
             "exact (erf) GELU on Q, K, V and in the FFN", "the default of the authors' software", MODELS),
    Decision("Biases", "“ignoring the bias vectors”",
             "one q'-vector on each L_i, added after the convolution; FFN biases; none on p",
             "the sentence implies that there are biases; the equations allow these", MODELS),
    Decision("Projection p", "R^{1×q'}",
             "as printed, without a further output projection: channels mix only in FFN and attention",
             "Table 2 counts q' parameters", MODELS),
    Decision("Normalisation and skips", "“not shown”",
             "pre-LayerNorm residual around each of the three sub-layers, a last LayerNorm, ε = 1e-5",
             "the usual choice for decoders in 2021; trains stably", MODELS),
    Decision("LSTM baseline", "a law; no model is described",
             "3 layers of width d with skip connections and LayerNorms without weights; forget gates open (bias 1)",
             "neither adds parameters, and without them such a narrow stack does not improve on the unigram "
             "distribution", VARIANTS),
    Decision("Embedding", "2.5M to 10M parameters in total",
             "tied with the output, no output bias: 2.47M at d = 48, 11.25M at d = 204",
             "untied would be 4.9M to 21.5M", MODELS),
    Decision("Positions", "not stated",
             "none in the LMU and the LSTM; learned and absolute, outside N, in the transformer; rotary in LMU + "
             "attention and in the modern transformer",
             "the LMU's memory encodes the order, but the first attention of LMU + attention comes before it: rotary "
             "positions gain 0.09 nats on validation", "models.per_variant"),
    Decision("Modern transformer", "not in the paper",
             "a fifth variant: rotary positions, RMSNorm, gated FFN (SwiGLU), normalised queries and keys, no biases; "
             "N = 24d²", "the baseline that readers compare with today", VARIANTS),
    Decision("Transformer, rotary", "not in the paper",
             "a sixth variant, used in the study: the GPT-2-style transformer with rotary positions",
             "shows how much of a difference is due to learned positions", VARIANTS),
    Decision("Heads of global attention", "not stated",
             "2 up to d = 92, 4 above; scaled by 1/√d_h; causal", "heads of 24 to 51 dimensions", "models.sizes.heads"),
    Decision("Blocks with global attention", "“in place of the FFN before the LMU”",
             "every block", "the paper mentions no exception, and N = 24d² holds", VARIANTS),
    Decision("Dropout", "not stated",
             "0", "less than two epochs of data", "models.dropout"),
    Decision("Initialisation", "not stated",
             "Glorot uniform for L_i, FFN and p; N(0, 0.02) for the embedding; zero biases; the last projections of "
             "attention models halved (GPT-2's 1/√4)",
             "the defaults of the authors' software; GPT-2's for the embedding", "models.per_variant"),
    Decision("Scale of the input embedding", "not stated",
             "a factor on the embedding at the input (not in the tied head), searched with the learning rate for each "
             "variant on validation",
             "with a factor of 1 the first attention's output swamps the token: 4.88 instead of 4.37 nats for the "
             "transformer, while the LSTM loses 1.1 nats at a factor of 50 (docs/log.md)", "training.tuning"),
    Decision("Discretisation", "zero-order hold, step 1",
             "the same, in float64 on the CPU by a matrix–vector recursion, then cast; frozen",
             "float32 loses digits at high order", MODELS),
    Decision("Equations 5 and 6", "x is written in reverse",
             "natural order, zero padding, the first n values are kept",
             "taken literally the convolution would look ahead; a test checks causality", MODELS),
    Decision("State at t", "includes x_t",
             "the same; predicts x_{t+1}", "equation 1", MODELS),
)

TRAINING = (
    Decision("Separator", "<|endofsequence|>",
             "<|endoftext|> (50256)", "GPT-2's vocabulary has no <|endofsequence|>", "tokens.encoding"),
    Decision("Additional filtering", "undefined; about 8B tokens remain",
             "an ordered list of filters, each with a report of its effect, then an optional subsample to a number "
             "of tokens", "about half of OpenWebText2 must be removed, and the paper does not say which half",
             "corpus.filters"),
    Decision("Long documents", "only shorter ones are described",
             "documents and separators form one stream, cut at n (+1 for the target)",
             "no text is discarded, and every window is full", "models.context"),
    Decision("Split 96/3/1", "unit not given",
             "by document, by a stable hash of the content",
             "does not depend on file order, workers or shards; no document is in two splits", "corpus.split"),
    Decision("Leakage", "not mentioned",
             "no validation or test document shares more than 5 % of its runs of eight words with training",
             "two versions of one text in both splits would test memory", "corpus.filters"),
    Decision("Split that is reported", "not stated",
             "hyper-parameters are chosen on validation; test is reported, once",
             "choosing on the test split would bias the result", "evaluation.max_sequences"),
    Decision("Epochs", "“infinite data limit”",
             "epochs of each run are recorded", "13.1B tokens over 96 % of 8B are 1.7 epochs; 130B would be 17",
             "training.steps"),
    Decision("Tokens", "25,000 × 512 × 1024 = 13.1B",
             "the same in the preset “paper”", "as printed", "training.steps"),
    Decision("Optimiser", "Adam, “all the default settings”",
             "recipe “paper”: rate 1e-3, β 0.9 and 0.999, ε 1e-7, no decay, no clipping; recipe “tuned”: learning "
             "rate and embedding scale searched for each variant on validation with the same number of runs, clipped "
             "at 1. The preset “paper” trains the LMU variants by both",
             "ε = 1e-7 is the default of the authors' software; one rate for all favours the model that suits it",
             "training.recipe"),
    Decision("Schedule", "linear warm-up, cosine to zero, “also reducing on plateau”",
             "4 % warm-up, cosine to zero; the plateau factor multiplies the cosine, off by default",
             "length of warm-up, factor and patience are not given", "training.schedule"),
    Decision("Precision", "not stated",
             "GPU: bfloat16 products; float32 FFT, softmax and cross-entropy, forwards and backwards; evaluation and "
             "CPU: float32; recorded with each run", "bfloat16 FFTs lose the memory's accuracy",
             "lmu_scaling/training/"),
    Decision("Seeds", "one",
             "a list; 3 in the preset “paper”", "intervals need more than one", "training.seeds"),
    Decision("Checkpoint that is reported", "not stated",
             "the last step", "the cosine ends there", "lmu_scaling/training/"),
)

REFERENCES = (
    Decision("Transformer law", "(S/S_min(S))^-0.76",
             "Kaplan et al. (2020), eq. 1.6: (S_c/S_min)^0.76 with S_c = 2100",
             "as printed it does not depend on S and puts the transformer above the LSTM", "analysis.reference"),
    Decision("Critical batch size in it", "commented out",
             "“kaplan_comment”: B_crit at the loss of the converged model, as in the comment; “kaplan_self” solves "
             "it self-consistently", "the two differ by at most 0.011 nats from 55k to 1M", "analysis.reference"),
    Decision("LSTM law", "attributed to Kaplan et al.",
             "drawn as the paper prints it",
             "it is not in the text of Kaplan et al., and was probably read from a figure", "lmu_scaling/catalog/"),
    Decision("Baselines", "borrowed laws",
             "a transformer and an LSTM of ours on the same tokens; borrowed laws are reference lines only",
             "the laws were measured on another corpus; replications differ from them by more than the effect under "
             "test", "models.variants"),
)
# fmt: on
SECTIONS = {
    "Architecture (paper, section 4)": ARCHITECTURE,
    "Data and training (paper, section 5)": TRAINING,
    "Reference curves (paper, section 5, Results)": REFERENCES,
}
