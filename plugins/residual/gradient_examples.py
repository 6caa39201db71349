# SPDX-License-Identifier: Apache-2.0
"""Calls with which tests/python/test_gradients.py checks the gradients that the formulas in
plugin.toml have."""

import numpy


def examples():
    """Yields (op, arguments, keywords); tensors with a gradient are float64."""
    random = numpy.random.default_rng(1)
    hidden, residual, attention = (random.standard_normal((2, 3, 4)) for _ in range(3))
    bias, attention_bias = (random.standard_normal(4) for _ in range(2))
    for form in ("pre_norm", "parallel"):
        keywords = {"form": form, "divisor": 2.0}
        yield "residual_add", (hidden, residual, attention, bias, attention_bias), keywords
    yield "residual_add", (hidden, residual, None, bias), {"form": "post_norm"}
    yield "vector_add", (hidden, residual), {"gamma": 0.5}
    yield "moe_res_matmul", (hidden, random.standard_normal(8), residual), {}
