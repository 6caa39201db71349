# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    numbers = numpy.random.default_rng(1)
    index = numpy.array([[4, 0], [2, 3]], numpy.int32)
    for batch_first in (True, False):
        x = numbers.standard_normal((2, 5, 3) if batch_first else (5, 2, 3))
        yield "token_gather", (x, index), {"batch_first": batch_first}
