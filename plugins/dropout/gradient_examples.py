# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    x = numpy.random.default_rng(1).standard_normal((3, 5))
    mask = numpy.arange(15).reshape(3, 5) % 4 != 0
    for p in (0.0, 0.4, 1.0):
        yield "dropout", (x, p), {"generator": (7, 2)}
        yield "dropout_backward", (x, mask, p), {}
    yield "dropout", (x,), {}
