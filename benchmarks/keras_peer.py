"""keras-lmu's FFT layer followed by the same L and attention, in an environment of its own, as a timed process.

`Peer` makes the environment under benchmarks/.cache/ if need be. Run as a script in it, this file reads one line per
request ("run") and answers with the seconds of one forward and backward pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parent / ".cache" / "keras-lmu"
PACKAGES = ("keras-lmu==0.9.0", "tensorflow-cpu==2.21.0", "keras==3.15.1")


def python() -> Path:
    """The interpreter of the environment, which is made on first use (about 1 GB)."""
    interpreter = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "complete").exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run([str(interpreter), "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (ENVIRONMENT / "complete").touch()
    return interpreter


class Peer:
    """A process that times itself on request."""

    def __init__(self, **settings: int) -> None:
        command = [str(python()), __file__, json.dumps(settings)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return line
        raise RuntimeError("the keras-lmu process ended; its messages are above")

    def __call__(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(json.loads(self._line())["seconds"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def serve(d: int, q: int, r: int, n: int, batch: int, threads: int, xla: int, cpu: int) -> None:
    """Runs in the other environment."""
    import time

    clock = time.process_time if cpu else time.perf_counter
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

    @tf.function(jit_compile=bool(xla))
    def both_ways() -> list:
        with tf.GradientTape() as tape:
            tape.watch(x)
            memory = tf.reshape(layer.call(x), (batch, n, d, q))
            y = tf.nn.gelu(tf.einsum("bndq,qk->bnkd", memory, L))
            Q, K, V = tf.split(y, 3, axis=2)
            mixed = tf.matmul(tf.nn.softmax(tf.matmul(Q, K, transpose_b=True)), V)
            m = tf.einsum("i,bnid->bnd", p, mixed)
            loss = 0.5 * tf.reduce_sum(m * m)
        return tape.gradient(loss, [x, L, p])

    print(json.dumps({"tensorflow": tf.__version__, "keras-lmu": keras_lmu.__version__}), flush=True)
    for _ in sys.stdin:
        start = clock()
        for gradient in both_ways():
            gradient.numpy()
        print(json.dumps({"seconds": clock() - start}), flush=True)


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
