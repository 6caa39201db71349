# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    random = numpy.random.default_rng(1)
    x, residual = random.standard_normal((2, 3, 2, 5))
    weight, bias = random.standard_normal((2, 5))
    yield "layer_norm", (x,), {}
    yield "layer_norm", (x, weight), {}
    yield "layer_norm", (x, None, bias), {"eps": 0.1}
    yield "layer_norm", (x, weight, bias), {}
    yield "add_layer_norm", (x, residual, weight, bias), {"eps": 0.1}
    yield "rms_norm", (x,), {}
    yield "rms_norm", (x, weight), {"eps": 0.1}
    yield "add_rms_norm", (x, residual, weight), {}
