# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    x = numpy.random.default_rng(1).standard_normal((5, 3))
    for sizes in ([5], [2, 0, 3], [1] * 5):
        yield "split_rows", (x, sizes), {}
    yield "split_rows", (x[:0], []), {}
