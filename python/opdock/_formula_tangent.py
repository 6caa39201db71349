# SPDX-License-Identifier: Apache-2.0
"""Computes tangents of elementwise formulas: what forward-mode differentiation asks for.

Each element of the result depends on one element of each tensor, so that the Jacobian for a tensor
that has the result's shape is diagonal, and its product with a tangent is what the formula of the
gradient makes of that tangent. A tensor that is broadcast is expanded first.
"""

from opdock._errors import UnsupportedError
from opdock._formula_reach import ELEMENT, reach


def check(name, text, num_results):
    """Raises UnsupportedError, which names the op, if tangents cannot be computed. text: the op's
    formula, "" if it has none."""
    if text == "" or num_results != 1 or reach(text) != ELEMENT:
        raise UnsupportedError(
            f"{name}: found a tensor with a tangent (forward-mode differentiation), which only "
            "elementwise formulas with one result define; use reverse mode, such as torch.func.vjp "
            "or backward(), or pass x.detach()"
        )


def tangent(name, result, values, tangents, gradient):
    """Returns the tangent of the op's result.

    name: the op's, for errors. values: {name: argument}; tensors without their tangents. tangents:
    {name: tangent}. gradient(name, incoming, values): calls the formula's gradient of a parameter.
    """
    total = None
    for one, incoming in tangents.items():
        x = values[one]
        if x.dtype != result.dtype:
            raise UnsupportedError(
                f"{name}: found a tangent for {one!r} of {x.dtype} and a result of {result.dtype}, "
                f"wanted one dtype for forward-mode differentiation; pass {one}.to({result.dtype})"
            )
        wide = {**values, one: x.expand(result.shape)}
        part = gradient(one, incoming.expand(result.shape).contiguous(), wide)
        total = part if total is None else total + part
    return total
