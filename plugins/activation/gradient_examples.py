# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    random = numpy.random.default_rng(1)
    # Numbers are far from 0, where relu has no derivative.
    x, up = (random.choice([-1, 1], (3, 6)) * random.uniform(0.2, 3, (3, 6)) for _ in range(2))
    bias = random.uniform(-0.1, 0.1, 6)
    yield "bias_add", (x, bias), {}
    yield "bias_relu", (x, bias), {}
    yield "silu", (x,), {}
    yield "silu_mul", (x, up), {}
    yield "geglu", (x,), {}
    yield "swiglu", (x,), {}
    yield "swiglu", (x, bias), {}
    for approximate in ("none", "tanh"):
        keywords = {"approximate": approximate}
        yield "bias_gelu", (x, bias), keywords
        yield "gelu_mul", (x, up), keywords
        yield "geglu", (x, bias), keywords
