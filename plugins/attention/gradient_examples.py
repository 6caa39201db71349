# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    random = numpy.random.default_rng(4)
    q = random.standard_normal((2, 3, 2, 5))
    k, v = (random.standard_normal((2, 4, 1, 5)) for _ in range(2))
    mask = random.standard_normal((1, 2, 1, 4)).astype("float32")
    lengths = numpy.array([4, 2], dtype="int32")
    yield "attention", (q, k, v), {"causal": True, "window": 2}
    yield "attention", (q, k, v), {"mask": mask, "scale": 0.7}
    yield "attention_forward", (q, k, v), {"lengths": lengths, "dtype": "float64"}
    bias = random.standard_normal((1, 2, 3, 4))
    yield "attention", (q, k, v), {"bias": bias, "causal": True}
    yield "attention_forward", (q, k, v), {"bias": bias[:, :, :1], "dtype": "float64"}
    options = {"lengths": lengths, "dtype": "float64", "generator": (7, 2)}
    yield "attention_dropout", (q, k, v, 0.4), options
    starts, key_starts = (numpy.array(x, dtype="int32") for x in ([0, 2, 2, 5], [0, 2, 3, 7]))
    q = random.standard_normal((5, 2, 5))
    k, v = (random.standard_normal((8, 1, 5)) for _ in range(2))
    arguments = q, k, v, starts, key_starts
    yield "attention_varlen", arguments, {"causal": True, "window": 2, "dtype": "float64"}
