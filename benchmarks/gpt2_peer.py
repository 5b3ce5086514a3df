"""A training step of Hugging Face `transformers`' GPT-2 with the shape of our transformer, in its own environment.

It borrows this environment's torch, so that both sides multiply with the same library. It is treated kindly: fused
SDPA attention, exact GELU (one kernel, where GPT-2's tanh form is eight), fused AdamW, no dropout.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.peers import Environment, Peer, serve

ENVIRONMENT = Environment("transformers", ("transformers==5.22.2",), borrow=True)


def peer(**settings: Any) -> Peer:
    """d, heads, layers, n, vocab, batch, threads, clock."""
    return Peer("benchmarks.gpt2_peer", ENVIRONMENT, **settings)


def main(d: int, heads: int, layers: int, n: int, vocab: int, batch: int, threads: int, clock: str) -> None:
    """Runs in the other environment."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape = {"n_embd": d, "n_head": heads, "n_layer": layers, "n_inner": 4 * d, "n_positions": n, "vocab_size": vocab}
    silent = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(
        **shape, **silent, activation_function="gelu", use_cache=False, attn_implementation="sdpa"
    )
    model = transformers.GPT2LMHeadModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(vocab, (batch, n))

    def step() -> None:
        optimiser.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()

    serve({"step": step}, {"transformers": transformers.__version__, "torch": torch.__version__}, clock)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
