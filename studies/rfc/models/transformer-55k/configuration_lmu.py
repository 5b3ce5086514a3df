"""Sizes of a language model of `lmu-scaling`, for Hugging Face transformers."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig


class LMUConfig(PretrainedConfig):
    """Sizes of a model: `sublayers` of one block, `num_blocks` times; a size that no sub-layer uses is None."""

    model_type = "lmu_scaling"
    attribute_map = {"num_hidden_layers": "num_blocks"}  # noqa: RUF012

    def __init__(
        self,
        vocab_size: int = 50257,
        hidden_size: int = 48,
        max_position_embeddings: int = 1024,
        sublayers: tuple[str, ...] = ("ffn", "lmu", "ffn"),
        num_blocks: int = 3,
        intermediate_size: int | None = 192,
        num_attention_heads: int | None = None,
        order: int | None = 40,
        reduced_order: int | None = 4,
        theta: float | None = 160,
        softmax_scale: str | None = "none",
        norm: str = "layer",
        positions: str = "none",
        embedding_scale: float = 1.0,
        norm_eps: float = 1e-5,
        use_cache: bool = True,
        **others: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.max_position_embeddings = (
            vocab_size,
            hidden_size,
            max_position_embeddings,
        )
        self.sublayers, self.num_blocks, self.intermediate_size = list(sublayers), num_blocks, intermediate_size
        self.num_attention_heads, self.order, self.reduced_order = num_attention_heads, order, reduced_order
        self.theta, self.softmax_scale, self.norm = theta, softmax_scale, norm
        self.positions, self.embedding_scale = positions, embedding_scale
        self.norm_eps, self.use_cache = norm_eps, use_cache
        others["tie_word_embeddings"] = False  # the head is the embedding itself
        super().__init__(**others)
