"""keras-lmu's FFT layer followed by the same L and attention (TensorFlow), in an environment of its own.

The library is installed as a package and used through its documented interface.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.peers import Environment, Peer, serve

ENVIRONMENT = Environment("keras-lmu", ("keras-lmu==0.9.0", "tensorflow-cpu==2.21.0", "keras==3.15.1"))


def peer(**settings: Any) -> Peer:
    """d, q, r, n, batch, threads, clock, xla."""
    return Peer("benchmarks.keras_peer", ENVIRONMENT, **settings)


def main(d: int, q: int, r: int, n: int, batch: int, threads: int, clock: str, xla: bool) -> None:
    """Runs in the other environment."""
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

    works = {
        "forward": lambda: forward().numpy(),
        "both": lambda: [gradient.numpy() for gradient in both_ways()],
    }
    serve(works, {"tensorflow": tf.__version__, "keras-lmu": keras_lmu.__version__}, clock)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
