"""Rivals that need packages of their own, each timed in a process of its own environment under benchmarks/.cache/.

A peer runs `python -m benchmarks.peers <name> <settings as JSON>`. It prints one JSON line with its versions, then
reads one word per line, does the work of that name, and answers with its seconds. The libraries are used through their
documented interfaces. This module imports the standard library only, because it also runs in those environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The same allocator settings as `keep_freed_memory` gives our process, for glibc: a fair comparison needs them.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62)}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Served = tuple[dict[str, Callable[[], Any]], dict[str, str]]  # work by name, versions


def keras_lmu(d: int, q: int, r: int, n: int, batch: int, threads: int, xla: bool) -> Served:
    """keras-lmu's FFT layer followed by the same L and attention (TensorFlow)."""
    import keras_lmu
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layer = keras_lmu.LMUFeedforward(
        memory_d=d, order=q, theta=n, hidden_cell=None, kernel_initializer=None, return_sequences=True
    )
    x = tf.random.normal((batch, n, d))
    L = tf.Variable(tf.random.normal((q, 3 * r)) / q**0.5)
    p = tf.Variable(tf.random.normal((r,)))
    layer.build(x.shape)

    @tf.function(jit_compile=xla)
    def forward() -> Any:
        memory = tf.reshape(layer.call(x), (batch, n, d, q))
        y = tf.nn.gelu(tf.einsum("bndq,qk->bnkd", memory, L))
        Q, K, V = tf.split(y, 3, axis=2)
        mixed = tf.matmul(tf.nn.softmax(tf.matmul(Q, K, transpose_b=True)), V)
        return tf.einsum("i,bnid->bnd", p, mixed)

    @tf.function(jit_compile=xla)
    def both_ways() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            m = forward()
            loss = 0.5 * tf.reduce_sum(m * m)
        return tape.gradient(loss, [x, L, p])

    work = {"forward": lambda: forward().numpy(), "both": lambda: [gradient.numpy() for gradient in both_ways()]}
    return work, {"tensorflow": tf.__version__, "keras-lmu": keras_lmu.__version__}


def gpt2(
    d: int,
    heads: int,
    layers: int,
    n: int,
    vocab: int,
    batch: int,
    threads: int,
    bf16: bool = False,
    compiled: bool = False,
) -> Served:
    """A training step of Hugging Face's GPT-2 with the shape of our transformer.

    With its fastest options: fused SDPA attention, exact GELU (one kernel instead of the eight of GPT-2's tanh form),
    fused AdamW, no dropout. `bf16`: under autocast; `compiled`: by torch.compile.
    """
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape = {"n_embd": d, "n_head": heads, "n_layer": layers, "n_inner": 4 * d, "n_positions": n, "vocab_size": vocab}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(
        **shape, **no_dropout, activation_function="gelu", use_cache=False, attn_implementation="sdpa"
    )
    model = transformers.GPT2LMHeadModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(vocab, (batch, n))
    forward = torch.compile(model) if compiled else model

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        optimiser.step()

    return {"step": step}, {"transformers": transformers.__version__, "torch": torch.__version__}


@dataclass(frozen=True)
class Environment:
    """Pinned packages; with `shared` it also sees the packages of this environment, so that both use one torch."""

    packages: tuple[str, ...]
    shared: bool = False

    def python(self, name: str) -> Path:
        """The interpreter; the environment is made on first use, and again when its pins change."""
        folder = HERE / ".cache" / name
        interpreter, complete = folder / "bin" / "python", folder / "complete"
        wanted = "\n".join(self.packages)
        if not complete.exists() or complete.read_text() != wanted:
            print(f"making the environment {name} ({', '.join(self.packages)}) ...", flush=True)
            venv.create(folder, with_pip=True, clear=True)
            if self.shared:  # pip counts what a path file names as installed, and never changes it
                (own,) = folder.glob("lib/python*/site-packages")
                (own / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
            command = [str(interpreter), "-m", "pip", "install", "-qq", *self.packages]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the environment {name} could not be made:\n{done.stderr[-2000:]}")
            complete.write_text(wanted)
        return interpreter


PEERS: dict[str, tuple[Environment, Callable[..., Served]]] = {
    "keras-lmu": (Environment(("keras-lmu==0.9.0", "tensorflow-cpu==2.21.0", "keras==3.15.1")), keras_lmu),
    "transformers": (Environment(("transformers==5.22.2",), shared=True), gpt2),
}


class Peer:
    """A process that times itself on request."""

    def __init__(self, name: str, **settings: Any) -> None:
        interpreter = PEERS[name][0].python(name)
        command = [str(interpreter), "-m", "benchmarks.peers", name, json.dumps(settings)]
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | KEEP_FREED_MEMORY | quiet, cwd=HERE.parent,
        )  # fmt: skip
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"a peer ended; run it by hand: {' '.join(map(str, self.process.args))}")  # type: ignore[arg-type]

    def run(self, word: str) -> Callable[[], float]:
        """For `interleaved`: ask for one pass, return its seconds."""

        def ask() -> float:
            assert self.process.stdin is not None
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            return float(self._answer()["seconds"])

        return ask

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def serve(name: str, clock: str, **settings: Any) -> None:
    """The peer's side: answer requests until the input ends."""
    work, versions = PEERS[name][1](**settings)
    print(json.dumps(versions), flush=True)
    for line in sys.stdin:
        start = CLOCKS[clock]()
        work[line.strip()]()
        print(json.dumps({"seconds": CLOCKS[clock]() - start}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], **json.loads(sys.argv[2]))
