"""The recurrent baseline of section 5: three LSTM layers of width d, so that N ≈ 24 d².

Skip connections and LayerNorms without weights cost no parameters, and without them a stack this narrow does not get
past the unigram distribution in the tokens that the other variants need to learn: a baseline must be able to compete.
"""

from lmu_scaling.models.architecture import Architecture, register

register(Architecture(name="lstm", label="LSTM", blocks=3, sublayers=("lstm",), norm="layer_plain", ffn_rule="none"))
