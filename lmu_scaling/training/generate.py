"""The job `generate`: sample text from a trained model, one token at a time, in the recurrent form (eq. 1).

An LMU or LSTM needs constant memory and time per token; a transformer keeps all earlier tokens and stops at its
context.
"""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from lmu_scaling.errors import ConfigError, ResultsError
from lmu_scaling.jobs import Folder, job
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.tokenizer import Tokenizer

MOST_TOKENS, HOTTEST, MOST_THREADS = 1_000_000, 100.0, 1024


@job
def generate(
    run: Folder,
    prompt: str = "The state of the Union is",
    length: int = 200,
    temperature: float = 0.8,
    seed: int = 0,
    threads: int = 1,
) -> None:
    """Generate text with a trained model: print the prompt and its continuation.

    Args:
        run: results/<experiment>/training/<run>
        prompt: text to continue
        length: number of tokens to generate
        temperature: 0 takes the most likely token; 1 samples from the model's distribution
        seed: seed of the sampling
        threads: CPU threads
    """
    check_options(length, temperature, seed, threads)
    check_text(prompt)
    torch.set_num_threads(threads)
    model = load_model(run)
    tokenizer = Tokenizer(model.spec.vocab, "tiktoken", "gpt2")
    ids = [tokenizer.eot, *tokenizer.encode(prompt).tolist()]
    room = model.spec.context - len(ids) if model.spec.positions == "learned" else length
    if room <= 0:
        raise ResultsError(
            f"the prompt has {len(ids)} tokens, the model's context is {model.spec.context}",
            str(run),
            "shorten the prompt",
        )
    print(prompt, end="", flush=True)
    letters = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a character may take several tokens
    said, start = 0, time.perf_counter()
    for token in sample(model, ids, min(length, room), temperature, torch.Generator().manual_seed(seed)):
        said += 1
        if token == tokenizer.eot:
            break
        print(letters.decode(tokenizer.decode_bytes([token])), end="", flush=True)
    rate = said / (time.perf_counter() - start)
    print(f"\n\n[{said} tokens at {rate:.0f} tokens/s, {model.spec.variant}, d = {model.spec.d}]", file=sys.stderr)


def check_options(length: int, temperature: float, seed: int, threads: int) -> None:
    """Raise ConfigError for a value that torch would refuse, or take without sense."""
    allowed = {
        "length": (1 <= length <= MOST_TOKENS, f"a number from 1 to {MOST_TOKENS:,}"),
        "temperature": (0 <= temperature <= HOTTEST, f"0, or a number up to {HOTTEST:g}"),
        "seed": (0 <= seed < 2**63, "a number from 0 to 2^63 - 1"),
        "threads": (1 <= threads <= MOST_THREADS, f"a number from 1 to {MOST_THREADS}"),
    }
    given = {"length": length, "temperature": temperature, "seed": seed, "threads": threads}
    for name, (valid, words) in allowed.items():
        if not valid:  # also NaN
            raise ConfigError(f"{name} cannot be {given[name]}", f"--{name}", f"give {words}")


def check_text(prompt: str) -> None:
    """Raise ConfigError for bytes that Python took from the command line and could not decode."""
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("the prompt is not valid UTF-8", "--prompt", "give text in UTF-8") from error


@torch.no_grad()
def sample(
    model: LanguageModel, ids: list[int], length: int, temperature: float, generator: torch.Generator
) -> Iterator[int]:
    """Read `ids`, then yield `length` tokens drawn from softmax(logits / temperature); temperature 0 takes the best."""
    state = model.initial_state(batch=1)
    logits_bv = torch.empty(0)
    for token in ids:
        logits_bv, state = model.step(torch.tensor([token]), state)
    for _ in range(length):
        token = _draw(logits_bv[0], temperature, generator)
        yield token
        logits_bv, state = model.step(torch.tensor([token]), state)


def _draw(logits_v: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits_v.argmax())
    return int(torch.multinomial(torch.softmax(logits_v / temperature, 0), 1, generator=generator))


def load_model(run: Path) -> LanguageModel:
    """The trained network of a folder `training/<run>`."""
    spec = RunSpec.read(run / "spec.json").model
    weights = run / "weights.safetensors"
    if not weights.is_file():
        raise ResultsError("this run has no weights yet", str(weights), "train it first: `snakemake --cores all`")
    model = build(spec, compile="off")
    model.load_state_dict(load_file(weights))
    return model.eval()
