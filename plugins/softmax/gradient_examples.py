# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that plugin.toml
declares."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    random = numpy.random.default_rng(1)
    x = random.standard_normal((2, 3, 5))
    mask = random.standard_normal((3, 1))
    for op in ("softmax", "log_softmax"):
        yield op, (x,), {}
        yield op, (x,), {"scale": 0.5, "mask": mask}
    # With a causal mask the results of log_softmax are infinite, and have no finite differences.
    yield "softmax", (x,), {"causal": True}
