# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    logits = numpy.random.default_rng(1).standard_normal((2, 3, 7))
    target = numpy.array([[0, 6, -100], [3, 3, 2]])
    for keywords in ({}, {"label_smoothing": 0.2, "ignore_index": 3}):
        target = numpy.where(target == -100, 3, target) if keywords else target
        yield "cross_entropy", (logits, target), {"dtype": "float64", **keywords}
