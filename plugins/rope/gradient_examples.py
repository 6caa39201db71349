# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    random = numpy.random.default_rng(1)
    q, k = random.standard_normal((3, 2, 8)), random.standard_normal((3, 1, 8))
    angles = random.uniform(-3, 3, (5, 3))
    tables = (numpy.cos(angles).astype("float32"), numpy.sin(angles).astype("float32"))
    for op in ("rope", "rope_backward"):
        for interleaved in (False, True):
            keywords = {"interleaved": interleaved}
            yield op, (q, k, *tables, numpy.array([4, 0, 2])), keywords
        yield op, (q, k, *tables), {}
